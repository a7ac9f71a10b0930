"""The first line of `models` and `devices`. Kind: output."""

import json
from collections.abc import Callable

import pytest

from tests.helpers.cli import Ran


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("models --family gpt2", ["distilgpt2", "gpt2-xl"]),
        ("models gpt2", ["124 M parameters", "context 1,024"]),
        ("devices", [" devices: ", "(t4)", "(m3-ultra)"]),
        ("devices h100", ["79.2 GiB of memory", "989 TFLOP/s in bf16"]),
    ],
)
def test_the_answer_is_in_the_table_and_in_the_json(run: Callable[..., Ran], arguments: str, words: list[str]) -> None:
    answer = json.loads(run(*arguments.split(), "--json").out)["answer"]
    assert all(word in answer for word in words)
    assert answer in run(*arguments.split(), columns=120).out
