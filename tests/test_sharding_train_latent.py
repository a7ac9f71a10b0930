"""Latent attention in a rank's training step: against transformers' own division of it, DeepSeek-V2's plan."""

from __future__ import annotations

import random
import weakref
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.test_sharding import fake_ranks, plan_of
from tests.test_sharding_lora import local
from tests.test_sharding_train import alive_on_a_rank
from tests.test_sharding_train_exchange import Packed
from tests.test_sharding_train_experts import sums
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.ledger.workload import Workload
from tfacct.reports import mesh as meshes
from tfacct.reports.training import Trained, trained
from tfacct.training.recipe import Recipe

OTHERS = (".experts", "self_attn")
"""What transformers divides here; torch's plan has the rest."""


def drawn(kind: str, seed: int) -> tuple[dict[str, Any], Recipe, Workload]:
    """Every other one has wide latents and little else, so that attention decides."""
    rng, mesh = random.Random(f"latent {kind} {seed}"), Mesh(tp=(2, 4)[seed % 2])
    wide = seed % 4 > 1
    heads, plain, turned = mesh.tp * rng.choice((1, 2, 3)), 8 * rng.choice((1, 2, 16)), 8 * rng.choice((1, 4))
    config: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": 16 if wide else 8 * rng.choice((4, 8, 20)),
        "intermediate_size": mesh.tp * 8 * (1 if wide else rng.choice((1, 4, 20))),
        "num_hidden_layers": rng.randint(2, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "kv_lora_rank": 8 * (rng.choice((2, 30, 80)) if wide else rng.randint(2, 6)),
        "q_lora_rank": rng.choice((None, 40, 400 if wide else 64)),
        "qk_nope_head_dim": plain,
        "qk_rope_head_dim": turned,
        "v_head_dim": rng.choice((8, 64, plain + turned)),
        "vocab_size": mesh.tp * (8 if wide else rng.choice((8, 50, 500))),
        "max_position_embeddings": 512,
        "tie_word_embeddings": kind == "youtu" and seed % 5 == 4,
    }
    if kind == "deepseek_v3":
        config |= {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": rng.choice((0, 1))}
        config |= {"n_routed_experts": rng.choice((4, 8)), "num_experts_per_tok": 2}
        config["moe_intermediate_size"] = mesh.tp * 8 * (1 if wide else rng.choice((1, 4, 20)))
    tokens = mesh.tp * rng.choice((4, 8, 40))
    how: dict[str, Any] = {"recompute": ("none", "none", "full")[seed % 3]}
    how["attention"] = "eager" if seed % 7 == 6 else "sdpa"
    return config, Recipe(optimizer="none", mesh=mesh, **how), Workload(tokens, tokens, rng.randint(1, 3))


def divided(config: dict[str, Any], recipe: Recipe) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module
    from transformers import DeepseekV2Config
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    from tfacct.meta.model import build_model

    mesh = recipe.mesh
    assert mesh is not None
    of_class = tfacct.load(config).loaded.of_class
    model = build_model(of_class, recipe.attention, "bf16", recompute=recipe.recompute)
    ranks = init_device_mesh("cpu", (mesh.tp,), mesh_dim_names=("tp",))
    second = {f"model.{name}": how for name, how in DeepseekV2Config.base_model_tp_plan.items() if "self_attn" in name}
    model.tp_plan = {**model.tp_plan, **second}  # of V3 and Youtu attention is whole in their own
    theirs, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.tp))
    own = {name: how for name, how in plan_of(model, mesh).items() if not any(part in name for part in OTHERS)}
    parallelize_module(model, ranks, own)
    apply_tensor_parallelism(
        model, ranks, {name: how for name, how in theirs.items() if any(part in name for part in OTHERS)}
    )
    if config["tie_word_embeddings"]:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model


def alive_here() -> Any:
    """What counts the bytes alive on a rank, but for the empty tensors from which transformers reads off strides: they
    are on meta wherever the model is."""
    counts = type(alive_on_a_rank())

    class Alive(counts):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if str(operator) == "aten.empty.memory_format":
                return operator(*args, **(kwargs or {}))
            return super().__torch_dispatch__(operator, types, args, kwargs)

    return Alive()


def witnessed(config: dict[str, Any], recipe: Recipe, work: Workload) -> tuple[int, int, dict[Any, Counter[int]]]:
    """Bytes that autograd holds on a rank, the most that are alive, and what is sent but for the loss."""
    import torch
    from torch.distributed.tensor.parallel import loss_parallel

    from tfacct.meta.cuda import cuda_kernels

    assert recipe.mesh is not None
    wraps = patch("torch.distributed._functional_collectives._maybe_wrap_tensor", lambda tensor: tensor)
    sent: dict[Any, Counter[int]] = {}
    found: dict[int, tuple[Any, list[Any]]] = {}
    with fake_ranks(recipe.mesh.tp), cuda_kernels(), loss_parallel(), wraps:
        model = divided(config, recipe)
        own = {local(tensor).untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}

        def save(tensor: Any) -> Packed:
            storage, packed = local(tensor).untyped_storage(), Packed(tensor)
            if storage._cdata not in own:  # what no gradient needs goes with the operation that asked for it
                found.setdefault(storage._cdata, (storage, []))[1].append(weakref.ref(packed))
            return packed

        ids = torch.zeros(work.batch, work.tokens, dtype=torch.long, device="meta")
        with torch.autograd.graph.saved_tensors_hooks(save, lambda packed: packed.tensor), sums(sent, "forward"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        kept = sum(storage.nbytes() for storage, asked in found.values() if any(by() is not None for by in asked))
        found.clear()
        with sums(sent, "backward"):
            loss.backward()
        model.zero_grad()
        del loss
        alive = alive_here()
        for tensor in (*model.parameters(), *model.buffers(), ids):
            alive.add(local(tensor))
        with alive:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    sent["tp", "forward", "all-reduce"].subtract({4 * work.batch * work.tokens: 3})
    return kept, alive.peak.bytes, {key: +sizes for key, sizes in sent.items() if +sizes}


def sends(one: Trained) -> dict[Any, Counter[int]]:
    found: dict[Any, Counter[int]] = {}
    assert one.recipe.mesh is not None
    for each in meshes.calls(one.subject, one.recipe.mesh, one.work.axes(), 16, train=True):
        if each.of != "shared weights":  # torch leaves these sums open until an optimizer asks
            found.setdefault((each.over, each.when, each.kind), Counter())[each.bytes // each.calls] += each.calls
    return found


def compared(kind: str, seed: int) -> None:
    config, recipe, work = drawn(kind, seed)
    one = trained(tfacct.load(config).loaded, work, recipe)
    kept, most, sent = witnessed(config, recipe, work)
    assert one.step.kept() == kept, (config, recipe, work)
    assert max(int(each.total) for each in one.instants if each.name != "optimizer step") == most, (config, recipe)
    assert one.exact
    if recipe.recompute == "none":  # what blocks send when they run again is not counted
        assert sends(one) == sent, (config, recipe)


@pytest.mark.parametrize(("kind", "seed"), [("youtu", 3), ("youtu", 4), ("deepseek_v3", 0), ("deepseek_v3", 2)])
def test_latents_of_a_rank_are_transformers_own(kind: str, seed: int) -> None:
    compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["youtu", "deepseek_v3"])
def test_latents_of_random_ranks_are_transformers_own(kind: str) -> None:
    for seed in range(5, 25):
        compared(kind, seed)


def test_deepseek_by_hand() -> None:
    rank, whole = (tfacct.load("deepseek-v3").train(ctx="1k", **mesh) for mesh in ({"tp": 8}, {}))
    kept = [{line["path"]: line["bytes"] for line in one.lines} for one in (rank, whole)]
    # 61 blocks: the latent of 512 numbers a token is whole on each rank, keys and values of 128 heads are an eighth.
    assert kept[0]["blocks.*.attn.kv_a_norm"] == kept[1]["blocks.*.attn.kv_a_norm"] == 61 * 1024 * 512 * 2
    assert 8 * kept[0]["blocks.*.attn.keys"] == kept[1]["blocks.*.attn.keys"] == 61 * 1024 * 128 * 192 * 2
    assert rank.sent_bytes == tfacct.load("deepseek-v3").comms(tp=8, train=True, ctx="1k").sent_bytes
    assert any(said.startswith("Latents are whole on each rank") for said in rank.notes)
