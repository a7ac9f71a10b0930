"""Logits on a mesh: gathered, sharded or on every rank, by hand. Kind: golden."""

from __future__ import annotations

import tfacct


def test_what_becomes_of_logits() -> None:
    model = tfacct.load("llama-3.1-8b")
    token = model.comms(tp=8, after_head="gathered").collectives
    assert [(one["kind"], one["of"], one["calls"], one["bytes"]) for one in token] == [
        ("all-gather", "logits", 1, 128_256 * 2),
        ("all-reduce", "stream", 65, 65 * 4096 * 2),
    ]
    step = model.comms(tp=8, after_head="loss", train=True, ctx="4k").collectives
    assert next(one["bytes"] for one in step if one["of"] == "logits") == 3 * 4096 * 4
    plain, wide = (model.comms(fsdp=8, train=True, ctx="4k", reduce_dtype=dtype) for dtype in (None, "fp32"))
    sums = [next(one for one in each.collectives if one["kind"] == "reduce-scatter") for each in (plain, wide)]
    assert sums[1]["bytes"] == 2 * sums[0]["bytes"] and wide.reduce_dtype == "fp32" and plain.reduce_dtype == "bf16"
