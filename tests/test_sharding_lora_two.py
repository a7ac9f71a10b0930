"""Adapters where ranks of two axes divide a model, against peft's own under torch's plans, on real tensors in a process
group that sends nothing."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.test_pipeline_fsdp import sizes
from tests.test_sharding import built, fake_ranks, plan_of, random_config, watched
from tests.test_sharding_lora import COLUMNS, PRODUCTS, lent, sends
from tests.test_sharding_train import without_seeds
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import timeline
from tfacct.ledger.workload import Workload
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

pytest.importorskip("peft")


def on_a_rank() -> Any:
    """A mode that sees bytes of all storages of a rank's own tensors."""
    from torch.distributed.tensor import DTensor

    class Own(type(sizes())):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # it runs first, and its tensors come here
            return super().__torch_dispatch__(operator, types, args, kwargs)

    return Own()


def adapters_plan(model: Any) -> dict[str, Any]:
    """How peft divides adapters: of a product by columns the second matrix, of one by rows the first."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    plan: dict[str, Any] = {}
    for name, _ in model.named_modules():
        *_, product, which, leaf = ["", "", *name.split(".")]
        if leaf == "default" and which == "lora_B" and product in COLUMNS:
            plan[name] = ColwiseParallel()
        elif leaf == "default" and which == "lora_A" and product not in COLUMNS:
            plan[name] = RowwiseParallel()
    return plan


def divided(config: dict[str, Any], recipe: Recipe, names: list[str], rank: int) -> Any:
    """The class with peft's adapters, by torch's plan among ranks of tp, its blocks gathered among those of fsdp."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = recipe.mesh
    assert mesh is not None
    model = built(config).to(torch.bfloat16)
    for module in model.modules():  # frequencies stay as they are where weights are made in bf16
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.float() if "freq" in name else buffer
    ranks = init_device_mesh("cpu", (mesh.fsdp, mesh.tp), mesh_dim_names=("fsdp", "tp"))
    plan = plan_of(model, mesh)
    lent(model, rank, names, recipe.adapter_dtype == "fp32", again=False)
    within = {name: hasattr(model.get_submodule(name), "base_layer") for name in plan}
    own = {f"{name}.base_layer" if within[name] else name: how for name, how in plan.items()}
    parallelize_module(model, ranks["tp"], {**own, **adapters_plan(model)})
    for name, weight in model.named_parameters():  # torch's plan of norms makes new ones, which are trained
        weight.requires_grad_("lora_" in name)
    if recipe.recompute == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for block in (*model.model.layers, model):
        fully_shard(block, mesh=ranks["fsdp"])
    return model


def witnessed(config: dict[str, Any], recipe: Recipe, names: list[str], rank: int, work: Workload) -> tuple[int, Any]:
    """The most bytes in a second step up to its last gradient, and what the first one sends but for the loss."""
    import torch
    from torch.distributed.tensor.parallel import loss_parallel

    assert recipe.mesh is not None
    sent: dict[Any, Counter[int]] = {}
    wraps = patch("torch.distributed._functional_collectives._maybe_wrap_tensor", lambda tensor: tensor)
    with fake_ranks(recipe.mesh.ranks), warnings.catch_warnings(), loss_parallel(), wraps:
        warnings.simplefilter("ignore")
        model = divided(config, recipe, names, rank)
        ids = torch.zeros(int(work.batch), int(work.tokens), dtype=torch.long)
        with watched(sent, "forward"):
            loss = model(input_ids=ids, labels=ids).loss
        with watched(sent, "backward"):
            loss.backward()
        del loss
        if not recipe.accumulates:
            model.zero_grad()
        alive = on_a_rank()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        for tensor in (*model.parameters(), *model.buffers(), *gradients, ids):
            alive.add(tensor)
        with alive:
            model(input_ids=ids, labels=ids).loss.backward()
    sent["tp", "forward", "all-reduce"].subtract({4 * ids.numel(): 3})
    return alive.most, {key: +found for key, found in sent.items() if +found}


def drawn(kind: str, seed: int) -> tuple[dict[str, Any], Recipe, list[str], int, Workload]:
    rng, mesh = random.Random(f"lora two {kind} {seed}"), Mesh(tp=(2, 4)[seed % 5 == 4], fsdp=(2, 3)[seed % 2])
    config = {**random_config(kind, rng, mesh), "num_hidden_layers": rng.choice((2, 3)), "tie_word_embeddings": False}
    config["intermediate_size"] = mesh.ranks * rng.choice((8, 40, 200))
    config["hidden_size"] = mesh.fsdp * config["num_attention_heads"] * rng.choice((2, 8))
    config["head_dim"] = 8 * mesh.fsdp * rng.randint(1, 2)
    config["vocab_size"] = mesh.tp * (2 * config["hidden_size"] + mesh.fsdp * rng.choice((24, 100)))
    names = [*PRODUCTS] if seed % 3 == 0 else rng.sample(PRODUCTS, rng.randint(1, 5))
    rank, tokens = rng.choice((1, 4, 6)), rng.choice((8, 16, 32))
    recipe = Recipe(
        optimizer="none",
        mesh=mesh,
        gradient_accumulation=1 + (seed % 3 == 1),
        lora=f"{rank}:{','.join(names)}",
        adapter_dtype=("bf16", "fp32")[seed % 2],
        recompute="none" if seed % 4 else "full",
    )
    return config, recipe.checked(), names, rank, Workload(tokens, tokens, rng.randint(1, 3))


def compared(kind: str, seed: int) -> None:
    config, recipe, names, rank, work = drawn(kind, seed)
    one = trained(tfacct.load(config).loaded, work, recipe)
    most, sent = witnessed(config, recipe, names, rank, work)
    found = max(int(each.total) for each in timeline(without_seeds(one.step)) if each.name != "optimizer step")
    assert found == most, (config, recipe, work)
    if recipe.recompute == "none":  # what blocks send when they run again is not counted
        assert sends(one) == sent, (config, recipe, work)


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("qwen3", 1)])
def test_adapters_of_tp_and_fsdp_are_pefts_own(kind: str, seed: int) -> None:
    compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma"])
def test_adapters_of_random_ranks_of_tp_and_fsdp_are_pefts_own(kind: str) -> None:
    for seed in range(2, 22):
        compared(kind, seed)


def test_adapters_of_llama_8b_on_two_axes_by_hand() -> None:
    model, both = tfacct.load("llama-3.1-8b"), {"tp": 2, "fsdp": 4}
    rank = model.train(ctx="4k", lora="16", **both)
    # Of q, k, v, gate, up the first matrix, 16 · 4,096, is whole on ranks of tp, of o and down the second; fsdp divides
    # the rows of each.
    whole = 7 * 16 * 4096
    halves = 16 * (4096 + 2 * 1024 + 2 * 14336 + 4096 + 14336) // 2
    assert rank.gradients_bytes == 4 * 32 * (whole + halves) // 4 == rank.lora_adapters["bytes"]
    assert rank.weights_bytes == model.train(ctx="4k", **both).weights_bytes + rank.lora_adapters["bytes"]
    # A block is gathered twice, frozen weights and adapters together; adapters' gradients alone are scattered.
    lent, frozen, norms = 4 * (whole + halves), 2 * (218_112_000 - 2 * 4096) // 2, 2 * 2 * 4096
    root = 2 * (2 * 128256 * 4096 // 2 + 4096)
    stream, narrow = 4096 * 4096 * 2, 4096 * 16 * 4
    over_tp = model.train(ctx="4k", lora="16", tp=2).sent_bytes
    over_fsdp = 3 * (32 * (2 * (frozen + norms + lent) + lent) + root) // 4
    assert rank.sent_bytes == over_tp + over_fsdp and over_tp > 32 * (2 * stream + 2 * narrow)
    twice = model.train(ctx="4k", lora="16", dp=2, **both)
    assert twice.sent_bytes == rank.sent_bytes + 32 * lent // 4
