"""Collectives of LoRA adapters on a mesh, by hand. Kind: golden."""

from typing import Any

import tfacct

LAYER, EMBEDDING = 218_112_000, 128_256 * 4096
"""Elements of a layer of Llama 3.1 8B, and of its embedding."""
LENT = 4 * 16 * (6 * 4096 + 14336 + 3 * 4096 + 2 * 1024 + 2 * 14336)
"""Bytes of a layer's adapters of rank 16, in fp32."""


def test_adapters_on_two_axes_by_hand() -> None:
    model, both = tfacct.load("llama-3.1-8b"), {"tp": 2, "fsdp": 4}
    rank = model.train(ctx="4k", lora="16", **both)
    # Of q, k, v, gate, up the first matrix, 16 · 4,096, is whole on ranks of tp, of o and down the second; fsdp divides
    # the rows of each.
    whole, halves = 7 * 16 * 4096, 16 * (4096 + 2 * 1024 + 2 * 14336 + 4096 + 14336) // 2
    assert rank.gradients_bytes == 4 * 32 * (whole + halves) // 4
    assert rank.weights_bytes == model.train(ctx="4k", **both).weights_bytes + rank.gradients_bytes
    # A layer is gathered twice, frozen weights and adapters together; adapters' gradients alone are scattered.
    lent, frozen, norms = 4 * (whole + halves), 2 * (LAYER - 2 * 4096) // 2, 2 * 2 * 4096
    root = 2 * (2 * EMBEDDING // 2 + 4096)
    stream, narrow = 4096 * 4096 * 2, 4096 * 16 * 4
    over_tp = model.train(ctx="4k", lora="16", tp=2).sent_bytes
    over_fsdp = 3 * (32 * (2 * (frozen + norms + lent) + lent) + root) // 4
    assert rank.sent_bytes == over_tp + over_fsdp and over_tp > 32 * (2 * stream + 2 * narrow)
    assert model.train(ctx="4k", lora="16", dp=2, **both).sent_bytes == rank.sent_bytes + 32 * lent // 4


def test_adapters_in_stages_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    asked: dict[str, Any] = {"ctx": "4k", "pp": 4, "batch": 8, "lora": "16"}
    alone, shared, divided = (model.train(**asked, **more) for more in ({}, {"fsdp": 8}, {"tp": 2}))
    assert alone.gradients_bytes == 8 * LENT == 8 * shared.gradients_bytes
    assert alone.sent_bytes == 2 * 8 * 2 * 4096 * 4096  # a middle stage: 8 streams on, as many gradients back
    # The last stage sends most: it gathers the head and the norm too, once, and gives 8 gradients back.
    gathered = 8 * (2 * LAYER + LENT) + 2 * EMBEDDING + 2 * 4096
    assert shared.sent_bytes == (gathered + 8 * LENT) * 7 // 8 + 8 * 2 * 4096 * 4096
    # An all-reduce of two ranks sends its result once: o and down forwards, the five others backwards, and adapters.
    stream, narrow = 2 * 4096 * 4096, 4 * 4096 * 16
    layer = (2 + 5) * stream + (2 + 5) * narrow
    # A middle stage sends each micro-batch on and its gradient back; the last sums the head's instead.
    assert divided.sent_bytes == 8 * (8 * layer + 2 * stream)


def test_a_plan_with_adapters_has_what_their_step_sends(run: Any) -> None:
    asked = "plan llama-3.1-8b --gpus 8 --on 80GB --train --lora 16 --ctx 4k --batch 8 --json --limit 0"
    rows = run(*asked.split()).models[0]["layouts"]
    model = tfacct.load("llama-3.1-8b")
    for row in rows:
        own = {axis: row[axis] for axis in ("tp", "fsdp", "dp", "pp", "batch", "recompute")}
        rank = model.train(ctx="4k", lora="16", gradient_accumulation=row["times"], **own)
        assert (row["bytes"], row["sent_bytes"]) == (rank.peak_bytes, rank.sent_bytes)
    assert {row["tp"] for row in rows} >= {1, 8}
