"""Collectives and shards as in papers, by hand. Kind: golden."""

from __future__ import annotations

from typing import Any

import pytest

import tfacct

MOE = {"layers": 58, "experts": 256, "active": 8, "hidden": 7168, "width": 2048}
"""DeepSeek-V3 (arXiv 2412.19437), section 4.2: the layers with experts, and their sizes."""


def lines(name: str, **asked: Any) -> list[dict[str, Any]]:
    return list(tfacct.load(name).comms(**asked).collectives)


def total(found: list[dict[str, Any]], key: str = "bytes", **where: str) -> int:
    return sum(one[key] for one in found if all(one[name] == said for name, said in where.items()))


def test_megatrons_all_reduces() -> None:
    # arXiv 1909.08053, section 3: two all-reduces of b·s·h in a layer each way, one for the table, one for the logits.
    found = lines("llama-3.1-70b", tp=8, tp_plan="megatron", train=True, ctx="8k")
    stream = 8192 * 8192 * 2
    for when in ("forward", "backward"):
        assert total(found, "calls", when=when) == 2 * 80 + 1
        assert total(found, when=when) == (2 * 80 + 1) * stream
    assert total(found, "sent_bytes") == 2 * (2 * 80 + 1) * stream * 2 * 7 // 8  # of a ring, 2 (t − 1) / t


def test_megatrons_sequence_parallelism_sends_as_many_bytes() -> None:
    # arXiv 2205.05198, section 4.2.2: an all-reduce in a ring is a reduce-scatter and an all-gather.
    asked: dict[str, Any] = {"tp": 8, "tp_plan": "megatron", "train": True, "ctx": "8k"}
    plain, parted = lines("llama-3.1-70b", **asked), lines("llama-3.1-70b", sp=True, **asked)
    norms = 2 * (2 * 80 + 1) * 8192 * 2 * 7 // 8  # gradients of norms, of h numbers, which only sp has to sum
    assert total(parted, "sent_bytes") == total(plain, "sent_bytes") + norms


def test_stages_hand_on_a_microbatch() -> None:
    # arXiv 2104.04473, section 3.2: b·s·h between two stages for each microbatch, each way.
    found = lines("llama-3.1-8b", pp=4, train=True, ctx="4k", batch=8)
    assert total(found, kind="send") == 2 * 8 * 4096 * 4096 * 2


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 4)])
def test_the_bubble(schedule: Any, chunks: int) -> None:
    # arXiv 2104.04473, sections 2.2.1 and 2.2.2: (p − 1) / m of the ideal time, and 1 / v of that.
    rank = tfacct.load("llama-3.1-8b").train(ctx="1k", pp=4, batch=32, schedule=schedule, pp_chunks=chunks)
    assert rank.bubble_ratio == 3 / (32 * chunks)


def test_tokens_go_to_their_experts_and_back() -> None:
    # arXiv 2006.16668, section 3.2: a token's h numbers to each of its experts, and the results back.
    found = lines("deepseek-v3", ep=64, tokens="4k", ctx="4k")
    each = MOE["layers"] * 4096 * MOE["active"] * MOE["hidden"] * 2
    counts = MOE["layers"] * MOE["experts"] * 8  # how many come, in 64 bits for each expert
    assert total(found, kind="all-to-all") == 2 * each + counts
    assert total(found, "sent_bytes", kind="all-to-all") == (2 * each + counts) * 63 // 64


def test_experts_of_a_rank_of_deepseek_v3() -> None:
    # 2412.19437, section 3.2.1: EP64 has 4 of 256 experts of each layer; each has three matrices of 7168 × 2048.
    model = tfacct.load("deepseek-v3")
    banks = 3 * MOE["hidden"] * MOE["width"] * MOE["layers"] * MOE["experts"]
    assert model.params(ep=64).rank_params == model.params().total_params - banks * 63 // 64


def test_a_ring_of_keys_and_values() -> None:
    # arXiv 2310.01889, section 3: keys and values of a rank's tokens are handed on, c − 1 times.
    found = lines("llama-3.1-8b", cp=4, ctx="8k", tokens="8k")
    assert total(found, kind="send") == 32 * 3 * 2 * 2048 * 8 * 128 * 2


def test_ulysses_moves_four_tensors() -> None:
    # arXiv 2309.14509, section 3.2: four all-to-alls of N·h / P, queries, keys, values and what attention gives.
    found = lines("llama-2-7b", ulysses=4, ctx="4k", tokens="4k")
    assert total(found, kind="all-to-all") == 32 * 4 * 1024 * 4096 * 2
    assert total(found, "calls", kind="all-to-all") == 32 * 4


def test_copies_of_shards() -> None:
    # arXiv 2304.11277, section 3.2.2, hybrid sharding: Ψ / F of gradients are summed among the copies.
    found = lines("llama-3.1-8b", fsdp=8, dp=4, train=True, ctx="1k")
    assert total(found, over="dp") == 2 * 8_030_261_248 // 8
    assert total(found, "sent_bytes", over="dp") == 2 * 8_030_261_248 // 8 * 2 * 3 // 4


def test_a_cache_divides_by_its_heads() -> None:
    # 70B with grouped keys (2307.09288, appendix A.2.1): 8 heads of 128, one on each of 8 ranks.
    model = tfacct.load("llama-3.1-70b")
    assert model.memory(ctx="8k", tp=8).kv_cache_bytes == 2 * 80 * 128 * 2 * 8192
    assert model.memory(ctx="8k").kv_cache_bytes == 8 * 2 * 80 * 128 * 2 * 8192
