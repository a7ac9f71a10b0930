"""Examples that check themselves against the reference model. Kind: oracle."""

from pathlib import Path

import pytest

from tests.helpers.examples import MODELS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", MODELS)
def test_models_of_parts_meet_their_parameters_and_verify(run, name: str) -> None:
    file = str(EXAMPLES / name)
    assert run("params", file, "--json").models[0]["total_params"] == MODELS[name]
    for command in ("flops", "memory", "models", "formula"):
        assert run(command, file).code == 0, command
    assert run("verify", file, "--ctx", "20").code == 0
