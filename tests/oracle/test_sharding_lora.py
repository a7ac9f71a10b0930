"""Adapters on matmuls that ranks divide: what they send, next to peft's own under torch's plans, and by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.helpers.torch_ranks import MATMULS, add_peft, divide_peft
from tests.oracle.test_sharding import built, fake_ranks, plan_of, random_config, watched, witnessed
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.training import layouts
from tfacct.training.recipe import FP32, Recipe


def counted(model: Any, recipe: Recipe, batch: int, tokens: int) -> dict[Any, Counter[int]]:
    found: dict[Any, Counter[int]] = {}
    for each in layouts.collectives(model, Workload(tokens, tokens, batch), recipe):
        found.setdefault((each.over, each.when, each.kind), Counter())[each.bytes // each.calls] += each.calls
    return found


def drawn(mesh: Mesh, seed: int) -> tuple[dict[str, Any], Recipe]:
    """A config, and a recipe with adapters on some of its matmuls."""
    rng = random.Random(f"lora {mesh} {seed}")
    config = {**random_config(("llama", "qwen3")[seed % 2], rng, mesh), "head_dim": 8, "tie_word_embeddings": False}
    config["vocab_size"] = mesh.tp * (2 * config["hidden_size"] + rng.choice((1, 50, 300)))
    lora = f"{rng.choice((1, 4, 5))}:{','.join(MATMULS)}"
    return config, Recipe(optimizer="none", mesh=mesh, lora=lora, adapter_dtype=rng.choice(("fp32", "bf16"))).checked()


@pytest.mark.parametrize("seed", [0, 1])
def test_adapters_of_ranks_of_tp_send_what_pefts_do(seed: int) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import loss_parallel, parallelize_module

    pytest.importorskip("peft")
    from tfacct.meta.cuda import cuda_kernels
    from tfacct.meta.lora import add_adapters
    from tfacct.meta.model import build_model

    mesh = Mesh(tp=2)
    config, recipe = drawn(mesh, seed)
    sent: dict[Any, Counter[int]] = {}
    with fake_ranks(2), cuda_kernels(), loss_parallel():
        model, ranks = build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16"), init_device_mesh("cpu", (2,))
        parallelize_module(model, ranks, plan_of(model, mesh))
        add_adapters(
            model, int((recipe.lora or "").partition(":")[0]), list(MATMULS), fp32=recipe.adapter_dtype == FP32
        )
        divide_peft(model, ranks)
        ids = torch.zeros(2, 16, dtype=torch.long, device="meta")
        with watched(sent, "forward"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        with watched(sent, "backward"):
            loss.backward()
    sent["tp", "forward", "all-reduce"].subtract({4 * 2 * 16: 3})  # of each token's loss
    theirs = {key: +sizes for key, sizes in sent.items() if +sizes}
    assert counted(tfacct.load(config).loaded, recipe, 2, 16) == theirs, (config, recipe)


@pytest.mark.parametrize("seed", [0, 1])
def test_adapters_of_ranks_of_fsdp_send_what_pefts_do(seed: int) -> None:
    pytest.importorskip("peft")
    mesh = Mesh(fsdp=(2, 3)[seed])
    config, recipe = drawn(mesh, seed)
    model = built(config).bfloat16()
    add_peft(model, int((recipe.lora or "").partition(":")[0]), fp32=recipe.adapter_dtype == FP32)
    assert counted(tfacct.load(config).loaded, recipe, 2, 8) == witnessed(model, mesh, 2, 8), (config, recipe)


LAYER, EMBEDDING = 218_112_000, 128_256 * 4096
"""Elements of a layer of Llama 3.1 8B, and of its embedding."""
LENT = 4 * 16 * (6 * 4096 + 14336 + 3 * 4096 + 2 * 1024 + 2 * 14336)
"""Bytes of a layer's adapters of rank 16, in fp32."""


def test_adapters_under_fsdp_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    rank = model.train(ctx="4k", fsdp=8, lora="16")
    assert rank.gradients_bytes == 32 * LENT // 8
    assert rank.weights_bytes - rank.gradients_bytes == model.train(ctx="4k", fsdp=8).weights_bytes
    # Each layer is gathered twice with its adapters; scattered are their gradients alone.
    whole, root = 2 * LAYER + LENT, 2 * (2 * EMBEDDING + 4096)
    assert rank.sent_bytes == 7 * (32 * (2 * whole + LENT) + root) // 8
    both = model.train(ctx="4k", fsdp=8, dp=2, lora="16")
    assert both.peak_bytes == rank.peak_bytes and both.sent_bytes == rank.sent_bytes + 32 * LENT // 8


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
    # A stage between others hands each micro-batch on and its gradient back; the last sums the head's instead.
    assert divided.sent_bytes == 8 * (8 * layer + 2 * stream)


def test_a_plan_with_adapters_has_what_their_step_sends(run: Any) -> None:
    asked = "plan llama-3.1-8b --gpus 8 --on 80GB --train --lora 16 --ctx 4k --batch 8 --json --limit 0"
    rows = json.loads(run(*asked.split()).out)["models"][0]["layouts"]
    model = tfacct.load("llama-3.1-8b")
    for row in rows:
        own = {axis: row[axis] for axis in ("tp", "fsdp", "dp", "pp")}
        rank = model.train(
            ctx="4k",
            batch=row["batch"],
            lora="16",
            gradient_accumulation=row["times"],
            recompute=row["recompute"],
            **own,
        )
        assert row["bytes"] == rank.peak_bytes
        if row["dp"] == 1 or row["tp"] == row["fsdp"] == 1:  # copies reduce once, ranks of tp each time
            assert row["sent_bytes"] == (row["times"] if row["dp"] == 1 else 1) * rank.sent_bytes
    assert {row["tp"] for row in rows} >= {1, 8}
