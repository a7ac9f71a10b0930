"""Data parallelism: gradients, HSDP and ZeRO, by hand. Kind: golden, refusal."""

from __future__ import annotations

from typing import Any

import tfacct


def test_copies_of_llama_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    whole = 2 * 8_030_261_248
    plain = model.comms(dp=8, train=True)
    (row,) = plain.collectives
    # A ring sends 7 of 8 shares twice.
    assert (row["kind"], row["over"], row["bytes"]) == ("all-reduce", "dp", whole)
    assert plain.mesh["ranks"] == 8 and abs(plain.sent_bytes - 2 * 7 * whole // 8) < 8 * 8 * row["calls"]
    # ZeRO 1 and 2 send as much: the sums are scattered, and what was updated is gathered.
    for zero in (1, 2):
        scatter, gather = model.comms(dp=8, zero=zero, train=True).collectives
        assert (scatter["kind"], scatter["calls"], scatter["bytes"]) == ("reduce-scatter", 33, whole // 8)
        assert (gather["kind"], gather["when"], gather["bytes"]) == ("all-gather", "update", whole)
    assert model.comms(dp=8, zero=3, train=True).collectives == model.comms(fsdp=8, train=True).collectives
    # HSDP: what fsdp has scattered is reduced among the copies.
    last = model.comms(fsdp=4, dp=2, train=True).collectives[-1]
    assert (last["kind"], last["over"], last["calls"], last["bytes"]) == ("all-reduce", "dp", 33, whole // 4)


def test_copies_are_said(run: Any) -> None:
    words = " ".join(run("plan", "llama-3.1-8b", "--dp", "8", "--train").out.split())
    assert "8 replicas each have their own batch; gradients are reduced in buckets of 25 MiB" in words
