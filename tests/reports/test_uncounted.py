"""What is not counted is named in every form of an answer. Kind: output."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.lazy import with_torch
from tests.helpers.weight_files import folder
from tfacct.base import units

MODEL = {
    "model_type": "gemma3",
    "text_config": {**TINY["gemma3_text"], "new_trick_size": 3},
    "vision_config": {"model_type": "siglip_vision_model"},
}
COMMANDS = (
    "flops FILE",
    "flops FILE --decode",
    "flops FILE --bytes",
    "flops FILE --generate 3 --ctx 8",
    "params FILE",
    "memory FILE",
    "memory --kv FILE",
    "formula FILE",
    "compare --by line FILE --ctx 8,9",
    "sweep FILE --ctx 8,9",
    "solve FILE --for batch --until kv_cache_bytes=1MB",
    with_torch("verify FILE --ctx 8"),
    with_torch("mfu --run FILE --ctx 8 --steps 1"),
    "models FILE",
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = folder(tmp_path, MODEL) / "config.json"
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_json_of_every_command_says_what_was_not_counted(run, file: str, command: str) -> None:
    found = run(*command.replace("FILE", file).split(), "--json")
    (model,) = found.models
    for one in (model["old_side"], model["new_side"]) if "old_side" in model else (model,):
        assert list(one)[:6] == ["model", "family", "set", "defaulted", "unknown", "left_out"]
        assert one["unknown"] == ["new_trick_size"]
        assert one["left_out"] == ["vision_config"]
    assert "new_trick_size" in found.err and "vision_config" in found.err
    assert model["notes"], "notes under the table"


@pytest.mark.parametrize(
    "command", ["flops", "params", "memory", "kv", "flops --bytes", "sweep", with_torch("verify --ctx 8")]
)
def test_the_csv_of_several_models_has_columns_for_it(run, file: str, command: str) -> None:
    name, *options = command.split()
    found = run(name, file, "gpt2", *options, "--csv")
    ours, other = csv.DictReader(io.StringIO(found.out))
    assert (ours["unknown"], ours["left_out"]) == ("new_trick_size", "vision_config")
    assert (other["unknown"], other["left_out"]) == ("", "")
    assert "unknown" not in run(name, file, "gpt2", *options).out


def test_the_notes_are_those_under_the_table_and_the_hint_of_a_longer_context(run) -> None:
    table = run("flops", "gpt2", "--ctx", "2k", "--verbose").out_line
    (gpt2,) = run("flops", "gpt2", "--ctx", "2k", "--json").models
    *under, longer = gpt2["notes"]
    assert len(under) >= 3 and all(note.removesuffix(".") in table for note in under)
    # 1,024 more rows of 768 numbers
    assert longer.startswith("gpt2 has a context of 1,024") and "the 786,432 parameters of a longer" in longer


def test_of_several_models_each_has_its_own_notes(run) -> None:
    models = run("flops", "gpt2", "mixtral-8x7b", "mamba-130m", "--json").models
    experts = [any("2 of 8 experts" in note for note in model["notes"]) for model in models]
    softmax = [any("softmax" in note for note in model["notes"]) for model in models]
    defaulted = [
        [note for note in model["notes"] if note.startswith("Defaults (not in the config): ")] for model in models
    ]
    assert experts == [False, True, False]
    assert softmax == [True, True, False]
    assert [len(notes) for notes in defaulted] == [int(bool(model["defaulted"])) for model in models]


def test_the_json_of_a_comparison_names_skipped_models(run, tmp_path) -> None:
    document = run("memory", "--kv", "gpt2", "bert-base", "--json").document
    assert [model["model"] for model in document["models"]] == ["gpt2"]
    assert document["models_skipped"] == [{"model": "bert-base", "why": "nothing is cached between steps"}]
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({**TINY["gpt2"], "quantization_config": {"quant_method": "vptq"}}))
    document = run("memory", "gpt2", str(file), "--json").document
    why = 'quant_method = "vptq" is not supported'
    assert document["models_skipped"] == [{"model": "odd.json", "why": why}]
    assert run("memory", "gpt2", "--json").document["models_skipped"] == []


def test_settings_with_their_own_longest_context_have_it_in_their_rows(run) -> None:
    found = run("sweep", "gpt2", "--set", "n_positions=512,2048", "--metric", "total_flops", "--json")
    (model,) = found.models
    assert model["swept"] == ["n_positions", "ctx"]
    assert [line["ctx"] for line in model["lines"]] == [512, 2048]
    assert model["workload"]["keys"] == 2048
    lines = run("sweep", "gpt2", "--set", "n_positions=512,2048").out.splitlines()
    assert "gpt2 over n_positions and ctx, batch 1" in lines


def test_numbers_between() -> None:
    numbers = [7], [7, 7], [4096, 512], [4096, 512, 1024]
    assert [*map(units.between, numbers)] == ["7", "7", "512 or 4,096", "512 to 4,096"]


@pytest.mark.parametrize("asked", ["flops", "flops --train", "flops --bytes", "memory", with_torch("verify")])
def test_models_with_merged_positions_are_named(run, asked: str) -> None:
    """64 is no multiple of the 9 patches of an image token. An answer about one model names a context that is."""
    command, *more = asked.split()
    ran = run(command, "gpt2", "gemma-4-e4b-vision", "--ctx", "64", *more, "--json")
    document = ran.document
    assert ran.code == 0 and [model["model"] for model in document["models"]] == ["gpt2"]
    (left_out,) = document["models_skipped"]
    assert left_out["model"] == "gemma-4-e4b-vision" and "positions are merged in groups" in left_out["why"]
    alone = run(command, "gemma-4-e4b-vision", "--ctx", "64", *more)
    assert alone.code == 2 and "use --ctx 72" in alone.err
