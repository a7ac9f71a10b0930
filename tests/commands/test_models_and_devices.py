"""The first line of `models` and `devices`. Kind: output."""

import csv
import io

import pytest

from tests.helpers.cli import Run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("models --family gpt2", ["distilgpt2", "gpt2-xl"]),
        ("models gpt2", ["124 M parameters", "context 1,024"]),
        ("devices", [" devices: ", "(t4)", "(m3-ultra)"]),
        ("devices h100", ["79.2 GiB of memory", "989 TFLOP/s in bf16"]),
    ],
)
def test_the_answer_is_in_the_table_and_in_the_json(run: Run, arguments: str, words: list[str]) -> None:
    answer = run(*arguments.split(), "--json").document["answer"]
    assert all(word in answer for word in words)
    assert answer in run(*arguments.split(), columns=120).out


def test_active_parameters_of_presets_with_experts(run: Run) -> None:
    """Mixtral: 32 layers, 2 of 8 experts of 3 · 4,096 · 14,336 weights are active, 46.7 B less 33.8 B are 12.9 B."""
    rows = list(csv.DictReader(io.StringIO(run("models", "moe", "--csv", "--sort", "active share").out)))
    (mixtral,) = (row for row in rows if row["model"] == "mixtral-8x7b")
    assert int(mixtral["total_params"]) - int(mixtral["active_params"]) == 32 * 6 * 3 * 4096 * 14336
    shares = [float(row["active_share"]) for row in rows]
    assert shares == sorted(shares) and shares[-1] < 1
    for width in (60, 80, 120):
        assert "27.6%" in run("models", "mixtral", "8x7b", columns=width).out  # 12.9 of 46.7 B
    assert "active share" not in run("models", "gpt2-").out  # all weights are active
    most = "Active parameters of longcat-flash-chat are a maximum: a token can use fewer experts."
    assert most in run("models", "longcat").out_line and "maximum" not in run("models", "mixtral").out
    assert {row["model"] for row in rows if row["active_is_maximum"]} >= {"longcat-flash-chat"}
    (facts,) = run("models", "mixtral", "8x7b", "--json").models
    assert facts["active_share"] == int(mixtral["active_params"]) / int(mixtral["total_params"])
    experts = "In 28 of 56 layers, a token uses 12 of 512 experts and a dense MLP."
    assert experts in run("params", "longcat-flash-chat").out_line
    assert "columns: model, family, params, active, active share" in run("models", "moe", "--sort", "active/total").err
    assert "`tfacct models moe` lists the presets with experts" in run("params", "moe").err
