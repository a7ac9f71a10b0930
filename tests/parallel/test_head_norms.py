"""Norms over all heads under tensor parallelism, by hand. Kind: golden, refusal."""

from __future__ import annotations

from typing import Any

import tfacct


def test_olmo_2_by_hand() -> None:
    model = tfacct.load("olmo-2-1b")  # 16 blocks of 16 heads of 128: as wide as the stream of 2,048
    sent = {(one["when"], one["kind"]): one["calls"] for one in model.comms(tp=8, train=True, ctx=64).collectives}
    # Queries, keys and values are gathered, and backward what attention gave; sums of o, down and the table, and of the
    # gradients of what q, k, v, gate and up read, and the head.
    assert sent == {
        ("forward", "all-gather"): 3 * 16,
        ("forward", "all-reduce"): 2 * 16 + 1,
        ("backward", "all-gather"): 16,
        ("backward", "all-reduce"): 5 * 16 + 1,
    }
    assert model.memory(ctx=4096, tp=8).kv_cache_bytes == model.memory(ctx=4096).kv_cache_bytes
    whole, rank = model.flops(ctx=1024).total, model.flops(ctx=1024, tp=8).total
    pairs = 2 * 2 * 16 * 1024 * 1024 * 2048  # scores and values of 16 blocks, on each rank
    assert rank == (whole - pairs) // 8 + pairs
    norms = 16 * (2 * 2048 + 2 * 2048) + 2048
    assert model.params(tp=8).rank_params == (1_484_916_736 - norms) // 8 + norms


def test_what_is_whole_is_said(run: Any) -> None:
    for command in ("memory", "memory --kv", "plan", "flops"):
        words = " ".join(run(*command.split(), "olmo-2-1b", "--tp", "2", "-v").out.split())
        assert "attention and the KV cache are whole on each rank" in words
    words = " ".join(run("memory", "--kv", "olmo-2-1b", "llama-3.2-1b", "--tp", "2", "-v").out.split())
    assert "A rank caches keys and values of its own heads. olmo-2-1b: whole on every rank" in words
    assert "K N are sharded" in run("plan", "olmo-2-1b", "--tp", "2", "--ctx", "64").out
