"""Examples that check themselves against the reference model. Kind: oracle."""

import runpy
from pathlib import Path

import pytest

from tests.helpers.examples import MODELS, WITH_TORCH

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", MODELS)
def test_models_of_parts_meet_their_parameters_and_verify(run, name: str) -> None:
    file = str(EXAMPLES / name)
    assert run("params", file, "--json").models[0]["total_params"] == MODELS[name]
    for command in ("flops", "memory", "models", "formula"):
        assert run(command, file).code == 0, command
    assert run("verify", file, "--ctx", "20").code == 0


@pytest.mark.parametrize("name", WITH_TORCH)
def test_a_script_prints_its_words(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    captured = capfd.readouterr()
    assert captured.err == ""
    for words in WITH_TORCH[name]:
        assert words in captured.out
