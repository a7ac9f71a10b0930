"""Set fields that change no count are named, with the fields that decide so. Kind: output."""

import tomllib
from pathlib import Path

import pytest

from tfacct import load

HINTS = tomllib.loads(Path(__file__).with_name("without_effect.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", HINTS)
def test_set_fields_without_effect_are_named(line: str, run) -> None:
    ran = run(*line.split())
    assert ran.code == 0, ran.err
    assert [one for one in ran.err.splitlines() if "changes no count" in one] == [f"hint: {one}" for one in HINTS[line]]


def test_the_json_has_the_hint_too() -> None:
    (facts,) = load("qwen2-7b", sliding_window=4096).params().document()["models"]
    assert any("use_sliding_window=True max_window_layers=0" in note for note in facts["notes"])
