"""`verify --train`: the formula compared with the class by two trackers, and a formula that is wrong. Kind: oracle."""

import json
from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.training import step


@pytest.mark.parametrize(
    "arguments",
    [
        "llama-3.2-1b --ctx 512 --set num_hidden_layers=3",
        "gpt2 --ctx 64 --dtype fp32 --recompute full --optimizer sgd-momentum --set n_layer=4",
        "bart-base --ctx 24 --source 56 --set encoder_layers=2 --set decoder_layers=3",
        "llama-3.2-1b --ctx 48 --weights fp32 --loss chunked --set num_hidden_layers=2",
    ],
)
def test_the_formula_is_within_its_bound_of_the_class(run: Run, arguments: str) -> None:
    ran = run("verify", "--train", *arguments.split(), "--json")
    assert ran.code == 0, ran.err
    (facts,) = ran.models
    checks = {each["check"]: each for each in facts["cross_checks"]}
    assert [*checks] == [
        "saved activations",
        "gradients",
        "optimizer state",
        "peak",
        "peak without optimizer state, by torch's MemTracker",
    ]
    assert facts["agrees"] and all(abs(each["error"]) <= 0.01 and each["equal"] for each in checks.values())
    saved = checks["saved activations"]
    assert (saved["counted"], saved["measured"]) == (facts["saved_bytes"], facts["measured_saved_bytes"])


def test_both_trackers_measure_the_same_peak() -> None:
    """torch's own tracker knows nothing of this program's. AdamW's state of 36 tensors in bf16 comes on top."""
    found = load("gpt2", n_layer=3).verify(train=True, ctx=40, batch=3)
    checks = {each["check"]: each["measured"] for each in found.cross_checks}
    assert checks["peak"] - checks["optimizer state"] == checks["peak without optimizer state, by torch's MemTracker"]


def test_a_formula_out_of_its_bound_is_seen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes fp32 copies for tensors of 2 bytes."""
    monkeypatch.setitem(step.ROLE_BYTES, "fp32", 2)
    ran = run(*"verify llama-3.2-1b --train --ctx 64 --batch 2 --set num_hidden_layers=2".split(), columns=120)
    assert ran.code == 1 and "checks are out of bounds: llama-3.2-1b (saved activations" in ran.out
    rows = {line.split("  ")[0].strip(): line for line in ran.out.splitlines()}
    assert rows["saved activations"].endswith("DIFFERS") and rows["gradients"].endswith("ok")


def test_several_models_in_one_table(run: Run, tmp_path: Path) -> None:
    small = {"gpt2": {"n_embd": 64, "n_head": 4}, "qwen3": {"head_dim": 16}}
    files = {name: tmp_path / f"{name}.json" for name in small}
    for name, file in files.items():
        file.write_text(json.dumps({**TINY[name], **small[name]}))
    asked = [*map(str, files.values()), "deberta-v3-base", *"--train --ctx 32 --optimizer adamw-8bit".split()]
    ran = run("verify", *asked)
    printed = ran.out_line
    assert ran.code == 0 and "Training steps in bf16 against the class" in printed and "deberta-v3-base" in ran.err


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({**TINY["mixtral"], "intermediate_size": 37}, "torch's expert matmuls need widths that are multiples of 8"),
        ({**TINY["t5"], "feed_forward_proj": "relu"}, "its class cannot run a step: T5Config has no decoder_start"),
        # transformers 5 refuses to tie the only hybrid layer to another.
        ({**TINY["zamba"], "num_hidden_layers": 3, "layers_block_type": None}, "at least two attention layers"),
    ],
)
def test_a_step_that_its_class_does_not_run_is_named(config: dict, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        load(config).verify(train=True, against="transformers", ctx=12, attention="eager")


@pytest.mark.slow
def test_saved_activations_are_proven(run: Run) -> None:
    """gpt2 with every block run again: two values of B, K, H, F, V and L, three of T."""
    ran = run("verify", "--prove", "gpt2", "--train", "--dtype", "bf16", "--recompute", "full", "--json")
    assert ran.code == 0, ran.err
    (facts,) = ran.models
    whole, *edges = facts["statements"]
    assert facts["proven"] and whole["difference"] == "0 at 192 of 192" and all(edge["proven"] for edge in edges)
    assert {edge["what"] for edge in edges} == {f"saved in bf16 at {at}" for at in ("B = 1", "K = 1", "B = 1, K = 1")}


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "family",
    ["llama", "qwen2", "qwen3", "mistral", "gemma", "olmo2", "opt", "gpt2", "mixtral", "phi", "phi3", "gpt_neox"],
)
def test_families_are_proven(run: Run, family: str, attention: str) -> None:
    ran = run("verify", "--prove", family, "--train", "--attention", attention)
    assert ran.code == 0 and "Proven: formula and model are the same polynomial" in ran.out, ran.out
