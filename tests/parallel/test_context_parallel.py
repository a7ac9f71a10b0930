"""Context parallelism: collectives of attention, by hand. Kind: golden, refusal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tfacct
from tests.helpers.cli import Ran


def test_llama_8b_in_a_ring_by_hand() -> None:
    found = tfacct.load("llama-3.1-8b").comms(cp=4, ctx="8k", batch=2, train=True, fsdp=2)
    both = 2 * 2 * 2048 * 8 * 128  # keys and values of a quarter of two sequences
    assert [(one["kind"], one["when"], one["calls"], one["bytes"]) for one in found.collectives[:3]] == [
        ("send", "forward", 32 * 3, 32 * 3 * both * 2),
        ("send", "backward", 32 * 3, 32 * 3 * both * 2),
        ("send", "backward", 32 * 4, 32 * 4 * both * 4),  # gradients go home, in fp32
    ]
    # Weights are divided among all eight ranks.
    assert found.rank_params * 8 == found.total_params
    assert [one["over"] for one in found.collectives[3:]] == ["fsdp"] * 3


def test_gathered_keys_and_divided_heads_by_hand() -> None:
    model = tfacct.load("gemma-3-27b-text")
    found = model.comms(cp=2, cp_method="gather", ulysses=2, tp=2, ctx="8k", tokens="8k")
    own = 2048 * 8 * 128 * 2  # keys of a quarter of the tokens and half the heads, in bf16
    kinds = {(one["kind"], one["over"]): (one["calls"], one["bytes"], one["sent_bytes"]) for one in found.collectives}
    assert kinds["all-gather", "cp"] == (62 * 2, 62 * 2 * 2 * own, 62 * 2 * own)
    # Queries and results have twice as many heads; half of each goes to the other rank.
    assert kinds["all-to-all", "ulysses"] == (62 * 4, 62 * 6 * own, 62 * 3 * own)
    # What tp reduces is of the same quarter of the tokens.
    assert kinds["all-reduce", "tp"][:2] == (62 * 2 + 1, (62 * 2 + 1) * 2048 * 5376 * 2)


def test_parts_of_a_sequence_sum_gradients_as_copies_do() -> None:
    model = tfacct.load("llama-3.2-1b")
    parts, copies = (
        next(one for one in model.comms(ctx=4096, train=True, **mesh).collectives if one["of"] == "weights")
        for mesh in ({"cp": 4}, {"dp": 4})
    )
    assert (parts["over"], copies["over"]) == ("cp", "dp")
    assert [parts[key] for key in ("kind", "calls", "bytes")] == [copies[key] for key in ("kind", "calls", "bytes")]


def test_only_a_step_has_buckets() -> None:
    model = tfacct.load("gpt2")
    # Queries, keys, values and the result of 12 blocks, 64/4 tokens of 768 numbers of 2 bytes; 3/4 of each is sent.
    forward = 12 * 4 * 16 * 768 * 2 * 3 // 4
    assert model.comms(ulysses=4, ctx=64, tokens=64).sent_bytes == forward
    # A step sends them once more, backward, and all-reduces 124,439,808 gradients of 2 bytes over 4 ranks.
    assert model.comms(ulysses=4, ctx=64, train=True).sent_bytes == 2 * forward + 124_439_808 * 2 * 2 * 3 // 4
    gated = tfacct.load("qwen1.5-moe-a2.7b")  # Its shared network has a gate: a number a token.
    assert gated.comms(ulysses=4, ctx=64, tokens=64).sent_bytes == 24 * 4 * 16 * 2048 * 2 * 3 // 4
    with pytest.raises(tfacct.TfacctError, match="its gradient buckets were not checked") as told:
        gated.comms(ulysses=4, ctx=64, train=True)
    assert told.value.hint == "use fsdp or zero"


def test_only_a_step_sums_gradients() -> None:
    model = tfacct.load("llama-3.2-1b")
    assert "The ranks that share a sequence have the same weights." in model.comms(cp=4, ctx=64, tokens=64).notes
    assert any("sum gradients" in said for said in model.comms(cp=4, ctx=64, train=True).notes)


def test_heads_that_ranks_of_tp_do_not_divide_leave_no_size(run: Callable[..., Ran]) -> None:
    """Eight heads of keys, three ranks of tp."""
    words = " ".join(run("plan", "llama-3.1-8b", "--tp", "3", "--ulysses", "2", "--ctx", "8k", "--train").err.split())
    assert "no size does, because --tp 3 alone does not divide all of them" in words
