"""Bytes of a training step in `sweep`, `compare`, `solve` and `evaluate`. Kind: law, refusal."""

from typing import Any

import pytest

from tfacct import load
from tfacct.accounts.metrics import STEP_METRICS
from tfacct.base.errors import TfacctError

LLAMA = load("llama-3.1-8b")
NAMES = ["saved_bytes", "gradients_bytes", "optimizer_bytes", "peak_bytes"]


def test_a_sweep_is_the_numbers_of_train() -> None:
    assert list(STEP_METRICS) == NAMES
    for recipe in ({}, {"optimizer": "adamw-8bit", "recompute": "full"}, {"attention": "eager", "dtype": "fp32"}):
        swept = LLAMA.sweep(*NAMES, ctx=[512, 4096], batch=[1, 3], **recipe)
        for row in swept.rows:
            facts = LLAMA.train(ctx=row["ctx"], batch=row["batch"], **recipe).models[0]
            assert [row[name] for name in NAMES] == [facts[name] for name in NAMES]
    assert swept.models[0]["attention"] == "eager" and swept.models[0]["optimizer"] == "adamw"


def test_fields_of_a_sweep_are_trained_too() -> None:
    """With 32 key heads instead of 8, queries and keys as rotated and values: 2 · 24 · 128 numbers more for a token."""
    rows = LLAMA.sweep("saved_bytes", ctx=[4096], num_key_value_heads=[8, 32]).rows
    assert rows[1]["saved_bytes"] - rows[0]["saved_bytes"] == 32 * 4096 * 2 * 24 * 128 * 2


def test_a_peak_is_solved_by_search_and_saved_bytes_in_closed_form() -> None:
    """4,715 tokens as `train --on 80GiB` finds; a token saves 6,973,204 bytes, and 780 are there anyway."""
    peak = LLAMA.solve("ctx", "peak_bytes=80GiB")
    assert (peak.total, peak.models[0]["beyond"], peak.models[0]["closed_form"]) == (4715, 4716, None)
    solved = LLAMA.solve("ctx", "saved_bytes=80GiB")
    assert solved.models[0]["closed_form"] == "(85,899,345,920 − 780)/6,973,204"
    saved = [LLAMA.train(ctx=value).saved_bytes for value in (solved.total, solved.total + 1)]
    assert saved[0] <= 80 * 1024**3 < saved[1]
    eager = LLAMA.solve("batch", "saved_bytes=80GiB", ctx=512, attention="eager").total
    saved = [LLAMA.train(ctx=512, batch=n, attention="eager").saved_bytes for n in (eager, eager + 1)]
    assert saved[0] <= 80 * 1024**3 < saved[1]


def test_rounded_kernels_and_fields_are_solved_too() -> None:
    """In fp32 a kernel rounds tokens up to 32; fields are tried, those whose step is not counted are passed over."""
    gpt2, budget = load("gpt2", n_positions=2**20), 8 * 1024**3
    most = gpt2.solve("ctx", "saved_bytes=8GiB", dtype="fp32").total
    assert gpt2.train(ctx=most, dtype="fp32").saved_bytes <= budget < gpt2.train(ctx=most + 1, dtype="fp32").saved_bytes
    windowed = load("mistral-7b-v0.1").solve("ctx", "saved_bytes=26GiB")  # 4,096 tokens save masks
    assert windowed.total == 4095 and not any("pairs of new tokens" in note for note in windowed.notes)
    heads = LLAMA.solve("head_dim", "peak_bytes=80GiB", ctx=4096)
    assert (heads.total, heads.models[0]["beyond"]) == (184, 192)
    blocks = LLAMA.solve("num_hidden_layers", "peak_bytes=80GiB", ctx=4096).total
    peaks = [load("llama-3.1-8b", num_hidden_layers=n).train(ctx=4096).peak_bytes for n in (blocks, blocks + 1)]
    assert peaks[0] <= 80 * 1024**3 < peaks[1]
    # 28.56 GB with 8 key heads, and 32 · 4,096 · 2 · 128 · 2 bytes for each more: 29.10 with 16, 30.17 with 32.
    keys = LLAMA.solve("num_key_value_heads", "saved_bytes=30GB", ctx=4096)
    assert (keys.total, keys.models[0]["beyond"]) == (16, 32)


def test_arrays_are_taken_point_by_point() -> None:
    np = pytest.importorskip("numpy")
    contexts = np.array([[512], [4096]])
    for exact in (True, False):
        found = LLAMA.evaluate("peak_bytes", ctx=contexts, batch=[1, 2], exact=exact)
        assert found.shape == (2, 2) and found[1, 0] == 80_946_473_364
    assert LLAMA.evaluate("optimizer_bytes", batch=[1], optimizer="sgd").tolist() == [0.0]
    for knobs, words in ((({"D": [8]}), "ctx and batch, not of D"), (({"ctx": [2.5]}), "whole numbers")):
        with pytest.raises(TfacctError, match=words):
            LLAMA.evaluate("peak_bytes", **knobs)


def test_a_peak_that_depends_on_the_order_of_parameters_is_an_upper_limit() -> None:
    report = load("gpt2").sweep("peak_bytes", ctx=[16], optimizer="adamw-for-loop")
    (facts,) = load("gpt2").train(ctx=16, optimizer="adamw-for-loop").models
    assert report.rows[0]["peak_bytes"] == facts["peak_bytes"] > facts["peak_least_bytes"]
    assert any("adamw-for-loop is an upper bound" in note for note in report.notes)
    assert not any("an upper bound" in note for note in load("gpt2").sweep("peak_bytes", ctx=[16]).notes)


@pytest.mark.parametrize(
    "recipe",
    [
        *({"weights_dtype": "fp32"}, {"loss": "chunked", "optimizer": "sgd"}, {"lora": 8, "weights_dtype": "nf4"}),
        {"lora": "8:q_proj", "adapter_dtype": "bf16", "lora_dropout": 0.1},
    ],
)
def test_metrics_know_every_field_of_a_recipe(recipe: dict[str, Any]) -> None:
    model = load("llama-3.2-1b")
    facts = model.train(ctx=256, **recipe).models[0]
    (row,) = model.sweep(*NAMES, ctx=[256], **recipe).rows
    assert [row[name] for name in NAMES] == [facts[name] for name in NAMES]
    answer = model.solve("ctx", f"peak_bytes={facts['peak_bytes']}B", **recipe).models[0]["solution"]
    assert answer >= 256 and model.train(ctx=answer, **recipe).peak_bytes == facts["peak_bytes"]
    compared = model.compare("gpt2", ctx=256, train=True, metric=list(NAMES), **recipe).models[0]["metric_values"]
    assert compared.items() >= {name: facts[name] for name in NAMES}.items()
