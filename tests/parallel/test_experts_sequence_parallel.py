"""Experts under sequence parallelism, by hand. Kind: golden."""

from __future__ import annotations

from typing import Any

import tfacct


def rows(**mesh: Any) -> dict[tuple[str, str, str], list[tuple[int, int]]]:
    """Calls and bytes of mixtral-8x7b at 4,096 tokens, by axis, pass and kind."""
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for one in tfacct.load("mixtral-8x7b").comms(train=True, ctx="4k", sp=True, **mesh).collectives:
        found.setdefault((one["over"], one["when"], one["kind"]), []).append((one["calls"], one["bytes"]))
    return found


STREAM = 4096 * 4096 * 2
"""Bytes of mixtral-8x7b's stream at 4,096 tokens in bf16. It has 32 blocks, and a router of 8 experts in each."""


def test_mixtral_by_hand() -> None:
    sent = rows(tp=8)
    for when in ("forward", "backward"):  # attention and experts of each block; the table, or the head
        assert sent["tp", when, "all-gather"] == [(33, 33 * STREAM), (32, 32 * STREAM)]
        assert sent["tp", when, "reduce-scatter"] == [(33, 33 * STREAM // 8), (32, 32 * STREAM // 8)]
    # Norms, two in each block and the last, and routers.
    assert sent["tp", "backward", "all-reduce"] == [(65 + 32, 2 * (65 * 4096 + 32 * 8 * 4096))]


def test_tokens_of_a_rank_go_to_their_experts_without_a_gather() -> None:
    sent = rows(tp=8, ep=8)
    pairs = 2 * STREAM // 8  # of the rank's part of the tokens, to two experts each
    assert sent["ep", "forward", "all-to-all"] == [(96, 32 * (2 * pairs + 8 * 8))]
    assert sent["ep", "backward", "all-to-all"] == [(64, 32 * 2 * pairs)]
    for when in ("forward", "backward"):
        assert sent["tp", when, "all-gather"] == [(33, 33 * STREAM)]


def test_a_rank_stores_what_it_does_without() -> None:
    model = tfacct.load("mixtral-8x7b")
    assert model.comms(tp=8, sp=True, ctx=64, train=True).rank_params == model.params(tp=8).rank_params
