"""Other names of presets: each means exactly one preset. Kind: law, refusal."""

import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import tfacct
from tfacct.base.errors import ConfigError, NotFoundError
from tfacct.loading import presets, spellings

HF = "https://huggingface.co"
NAMES = tomllib.loads(Path(__file__).with_name("spellings.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("typed", "preset"), NAMES["same_model"].items())
def test_the_same_model(run, typed: str, preset: str) -> None:
    ran = run("params", typed)
    assert ran.code == 0 and ran.out == run("params", preset).out
    hint = f"hint: using preset {preset} for "
    assert ran.err.startswith(hint) and len(ran.err.splitlines()) == 1 and "same sizes" not in ran.err
    assert run("memory", typed, "--ctx", "9").out == run("memory", preset, "--ctx", "9").out


@pytest.mark.parametrize(("typed", "preset"), NAMES["same_sizes"].items())
def test_a_model_of_the_same_sizes(run, typed: str, preset: str) -> None:
    (model,) = run("params", typed, "--json").models
    assert model["model"] == preset
    assert model["notes"][-1].startswith(f"using preset {preset} for ")
    assert ", which has the same sizes" in model["notes"][-1]


def test_parts_of_the_published_model_without_a_preset_are_named(run) -> None:
    assert run("params", "GPT2-XL").err == run("params", f"{HF}/gpt2-xl").err == ""
    assert run("memory", "GPT2-XL", "--ctx", "9").out == run("memory", "gpt2-xl", "--ctx", "9").out
    ran = run("params", "gemma-3-4b")
    assert ran.code == 0 and ran.out == run("params", "gemma-3-4b-text").out
    assert "only the language model is counted, without vision_config" in ran.err and "same sizes" not in ran.err
    ran = run("params", "moonshotai/Kimi-K2.5")
    assert (ran.code, ran.out) == (2, "") and "kimi-k2.5-vision is its encoder of images" in ran.err
    assert run("params", "openai/clip-vit-large-patch14").out == run("params", "clip-vit-large-patch14-vision").out
    ran = run("flops", "google/gemma-3-4b-pt", "gpt2", "--ctx", "9", "--json")
    first, second = ran.models
    assert first["left_out"] == ["vision_config"] and second["left_out"] == []
    assert "only the language model is counted, without vision_config" in ran.err
    assert run("flops", "gemma-3-4b-text").err == ""


@pytest.mark.parametrize("typed", NAMES["encoders"])
def test_an_encoder_does_not_answer_for_the_model_that_writes_text(run, typed: str) -> None:
    preset, of = NAMES["encoders"][typed]
    ran = run("params", typed)
    assert (ran.code, ran.out) == (2, "")
    message = f"error: there is no preset for the language model of {typed}\nhint: {preset} is its encoder of {of}\n"
    assert ran.err == message
    assert run("params", preset.upper()).out == run("params", preset).out


@pytest.mark.parametrize("typed", NAMES["never"])
def test_never_a_preset_for_another_model(run, typed: str) -> None:
    ran = run("params", typed)
    assert (ran.code, ran.out) == (2, ""), typed


def test_the_preset_that_is_used_is_named(run) -> None:
    ran = run("params", "mistral-7b")
    assert ran.code == 0 and ran.out == run("params", "mistral-7b-v0.3").out != run("params", "mistral-7b-v0.1").out
    named = "using preset mistral-7b-v0.3 for mistral-7b, the newest of mistral-7b-v0.1, mistral-7b-v0.3"
    assert named in ran.err_line
    ran = run("sweep", "gpt2-small", "--ctx", "8,16", "--set", "n_layer=1,2", "--metric", "total_params")
    assert ran.code == 0 and ran.err.count("using preset gpt2 for gpt2-small") == 1
    report = tfacct.load("gpt2-small", n_layer=1).params()
    assert report.models[0]["notes"][-1] == "using preset gpt2 for gpt2-small"


def test_a_path_is_a_path_and_a_file_of_that_name_wins(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match="no preset or file named"):
        tfacct.load(Path("gpt2-small"))
    with pytest.raises(NotFoundError):
        tfacct.load(Path("openai-community/gpt2"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2-small").mkdir()
    config = {"model_type": "gpt2", "vocab_size": 7, "n_embd": 4, "n_layer": 1, "n_head": 1}
    (tmp_path / "gpt2-small" / "config.json").write_text(json.dumps(config))
    assert run("models", "gpt2-small", "--json").models[0]["config"]["vocab_size"] == 7


def test_each_name_means_one_preset() -> None:
    """Nor does another name hide a preset's own."""
    every: Counter[str] = Counter()
    for name in presets.names():
        source = presets.source(name)
        page = spellings.hub_id(source.get("url", ""))
        full = {*source.get("also", ()), *source.get("hub", ()), *([page] if page else [])}
        every.update({name.casefold()} | {n.casefold() for n in full} | {n.rpartition("/")[2].casefold() for n in full})
    assert {name: count for name, count in every.items() if count > 1} == {}
    for name in presets.names():
        if page := spellings.hub_id(presets.source(name).get("url", "")):
            found = spellings.preset(page)
            assert found is not None and (found.name, found.itself) == (name, True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hub = 'a/b'", "[source] hub must be a list of names"),
        ("also = [1]", "[source] also must be a list of names"),
        ("hub = ['gpt2']", "[source] hub must list ids as OWNER/NAME, not 'gpt2'"),
        ("without = [' ']", "[source] without must be a list of names"),
    ],
)
def test_names_in_a_file_are_checked(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "mine.toml"
    text = (presets.folder() / "qwen2-7b.toml").read_text()
    file.write_text(text.replace("\n[expect]", f"{line}\n\n[expect]"))
    with pytest.raises(ConfigError) as refused:
        presets.load_file(file)
    assert says in str(refused.value)


def test_other_presets_are_not_read_for_a_name_that_one_has() -> None:
    """That would cost every start."""
    for name, reads in (("gpt2", False), ("gpt2-small", True)):
        code = f"""
import tfacct
from tfacct.loading import spellings
tfacct.load({name!r})
print(spellings._index.cache_info().currsize == 1)
"""
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == str(reads)
