"""The recipe of a training step: its options, and their former names."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Ran
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.training.recipe import Recipe


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ("--checkpoint attention", "--recompute attention"),
        ("--hold-logits", "--keep-logits"),
        ("--accumulate 3", "--gradient-accumulation-steps 3"),
    ],
)
def test_former_options_are_understood_and_not_listed(run: Callable[..., Ran], former: str, new: str) -> None:
    answers = [run("train", "gpt2", "--ctx", "96", *words.split(), "--json") for words in (former, new)]
    assert answers[0].code == 0 and json.loads(answers[0].out) == json.loads(answers[1].out)
    assert json.loads(answers[0].out) != json.loads(run("train", "gpt2", "--ctx", "96", "--json").out)
    assert former.startswith("--acc") or former.split()[0] not in run("train", "--help").out


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ({"checkpoint": "full"}, {"recompute": "full"}),
        ({"hold_logits": True}, {"keep_logits": True}),
        ({"accumulate": 3}, {"gradient_accumulation": 3}),
        ({"weights": "fp32"}, {"weights_dtype": "fp32"}),
        ({"lora": 4, "adapters": "bf16"}, {"lora": 4, "adapter_dtype": "bf16"}),
    ],
)
def test_former_keywords_are_understood(former: dict[str, Any], new: dict[str, Any]) -> None:
    model = load("gpt2")
    assert (
        model.train(ctx=960, **former).peak_bytes
        == model.train(ctx=960, **new).peak_bytes
        != model.train(ctx=960).peak_bytes
    )


@pytest.mark.parametrize("steps", [0, -1, True, 1.5])
def test_gradient_accumulation_is_a_number_of_micro_batches(steps: Any) -> None:
    with pytest.raises(UsageError, match="gradient_accumulation must be"):
        Recipe(gradient_accumulation=steps).checked()
