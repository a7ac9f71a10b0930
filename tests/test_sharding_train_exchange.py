"""Experts that ranks divide whole in a training step: against transformers' own all-to-all, on ranks that send
nothing."""

from __future__ import annotations

import random
import warnings
import weakref
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.test_sharding import fake_ranks, plan_of
from tests.test_sharding_lora import local
from tests.test_sharding_train import alive_on_a_rank
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import timeline
from tfacct.ledger.workload import Workload
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.train_ranks import computed
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

SIZES = {
    "mixtral": ("num_local_experts", "intermediate_size"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size"),
    "deepseek_v3": ("n_routed_experts", "moe_intermediate_size"),
}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": 40,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


def drawn(kind: str, mesh: Mesh, seed: int) -> tuple[dict[str, Any], Workload]:
    rng = random.Random(f"exchange {kind} {seed}")
    experts, width = SIZES[kind]
    config: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": 8 * rng.choice((4, 8, 20)),
        "intermediate_size": 48,
        "num_hidden_layers": rng.randint(2, 3),
        "num_attention_heads": 4,
        "num_key_value_heads": mesh.tp * rng.choice((1, 2)) if mesh.tp < 4 else 4,
        "head_dim": 16,
        "vocab_size": rng.choice((16, 100, 1000)),
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        experts: mesh.ep * rng.choice((1, 2, 3)),
        width: 8 * rng.choice((1, 4, 20, 60)),
    }
    config["num_experts_per_tok"] = min(config[experts], rng.randint(1, 4))
    if kind == "deepseek_v3":
        del config["head_dim"]
        config |= LATENT
    tokens = mesh.ep * rng.choice((4, 16, 40))
    return config, Workload(tokens, tokens, rng.randint(1, 3))


def divided(config: dict[str, Any], mesh: Mesh, again: bool = False) -> Any:
    """The class with transformers' own experts among ranks, the rest by torch's plan or whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module
    from transformers.distributed import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism

    from tfacct.meta.model import build_model

    model = build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16")
    asked = DistributedConfig(tp_size=mesh.tp, fsdp_size=mesh.ep // mesh.tp, ep_size=mesh.ep)
    _, by_experts, _ = model._resolve_parallel_plans(asked)
    if mesh.tp == 1:
        ranks = init_device_mesh("cpu", (1, mesh.ep), mesh_dim_names=("tp", "ep"))
        apply_expert_parallelism(model, ranks["ep"], ranks["tp"], by_experts)
    else:
        both = init_device_mesh("cpu", (mesh.tp,), mesh_dim_names=("tp",))
        plan = {name: how for name, how in plan_of(model, mesh).items() if ".experts" not in name}
        parallelize_module(model, both, plan)
        apply_expert_parallelism(model, both, both, by_experts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def evenly(rows: int) -> Any:
    """Stands for the numbers of rows that ranks tell one another, which no tensor on meta has."""
    import torch

    known = torch.Tensor.tolist

    def tolist(self: Any) -> Any:
        if self.device.type != "meta":
            return known(self)
        return [[rows // self.shape[1]] * self.shape[1]] * 2

    return patch.object(torch.Tensor, "tolist", tolist)


class Packed:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def witnessed(config: dict[str, Any], mesh: Mesh, work: Workload, again: bool = False) -> tuple[int, int]:
    """Bytes that autograd holds on a rank, and the most that are alive in a step."""
    import torch
    from torch.distributed.tensor.parallel import loss_parallel

    from tfacct.meta.cuda import cuda_kernels

    rows = work.batch * work.tokens // mesh.tp * config["num_experts_per_tok"]
    ids = torch.zeros(work.batch, work.tokens, dtype=torch.long, device="meta")
    with ExitStack() as stack:
        stack.enter_context(fake_ranks(mesh.ep))
        stack.enter_context(cuda_kernels())
        wraps = "torch.distributed._functional_collectives._maybe_wrap_tensor"
        stack.enter_context(patch(wraps, lambda tensor: tensor))
        stack.enter_context(patch("transformers.distributed.expert_parallel.all_to_all_single", lambda *_, **__: None))
        stack.enter_context(evenly(rows))
        if mesh.tp > 1:
            stack.enter_context(loss_parallel())
        model = divided(config, mesh, again)
        own = {local(tensor).untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
        found: dict[int, tuple[Any, list[Any]]] = {}

        def save(tensor: Any) -> Packed:
            storage, packed = local(tensor).untyped_storage(), Packed(tensor)
            if storage._cdata not in own:  # what no gradient needs goes with the operation that asked for it
                found.setdefault(storage._cdata, (storage, []))[1].append(weakref.ref(packed))
            return packed

        with torch.autograd.graph.saved_tensors_hooks(save, lambda packed: packed.tensor):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        kept = sum(storage.nbytes() for storage, asked in found.values() if any(by() is not None for by in asked))
        found.clear()
        loss.backward()
        model.zero_grad()
        del loss
        alive = alive_on_a_rank()
        for tensor in (*model.parameters(), *model.buffers(), ids):
            alive.add(local(tensor))
        with alive:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return kept, alive.peak.bytes


def compared(kind: str, mesh: Mesh, seed: int) -> None:
    config, work = drawn(kind, mesh, seed)
    kept, most = witnessed(config, mesh, work)
    one = trained(tfacct.load(config).loaded, work, Recipe(optimizer="none", mesh=mesh))
    assert one.exact
    step = one.step._replace(buckets=0)  # those of copies: the witness has none, and each of them has a test
    assert step.kept() == kept, (config, work)
    instants = (instant for instant in timeline(step) if instant.name != "optimizer step")
    assert max(int(instant.total) for instant in instants) == most, (config, work)


APART, SHARED = Mesh(dp=2, ep=2), Mesh(tp=2, ep=2)
"""Ranks with batches of their own, and ranks that share one."""


@pytest.mark.parametrize(
    ("kind", "mesh", "seed"),
    [
        ("mixtral", APART, 0),
        ("mixtral", SHARED, 1),
        ("qwen3_moe", APART, 2),
        ("qwen3_moe", SHARED, 3),
        ("deepseek_v3", APART, 4),
    ],
    ids=lambda one: f"tp{one.tp}" if isinstance(one, Mesh) else None,
)
def test_experts_of_other_ranks_keep_what_transformers_does(kind: str, mesh: Mesh, seed: int) -> None:
    compared(kind, mesh, seed)


@pytest.mark.slow
@pytest.mark.parametrize("ep", [2, 4])
@pytest.mark.parametrize("kind", SIZES)
def test_experts_of_random_ranks_keep_what_transformers_does(kind: str, ep: int) -> None:
    for seed in range(5, 15):
        compared(kind, Mesh(dp=ep, ep=ep), seed)
        if kind != "deepseek_v3":
            compared(kind, Mesh(tp=ep, ep=ep), seed)


def ran_again(kind: str, mesh: Mesh, seed: int) -> float:
    """What is kept where blocks run again; the share by which the peak is more than what is alive, or less."""
    config, work = drawn(kind, mesh, seed)
    kept, most = witnessed(config, mesh, work, again=True)
    recipe = Recipe(optimizer="none", mesh=mesh, recompute="full")
    one = on_ranks([tfacct.load(config).loaded], mesh.tp, mesh.ep)[0]
    step = computed(one, work, recipe)._replace(rows=(mesh.tp - 1, 1))
    assert step.kept() == kept, (config, work)
    return max(int(each.total) for each in timeline(step) if each.name != "optimizer step") / most - 1


@pytest.mark.parametrize(("kind", "seed"), [("deepseek_v3", 0), ("mixtral", 4)])
def test_experts_of_other_ranks_that_run_again_keep_what_transformers_does(kind: str, seed: int) -> None:
    mesh = APART if kind == "deepseek_v3" else SHARED
    assert abs(ran_again(kind, mesh, seed)) <= 0.10


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_random_experts_that_run_again_keep_what_transformers_does(kind: str) -> None:
    meshes_ = (APART,) if kind == "deepseek_v3" else (APART, SHARED)
    found = [ran_again(kind, mesh, seed) for mesh in meshes_ for seed in range(12)]
    assert max(map(abs, found)) <= 0.10 and sum(not off for off in found) > len(found) // 2, found


def test_mixtral_by_hand() -> None:
    rank = tfacct.load("mixtral-8x7b").train(ctx="4k", fsdp=8, ep=8)
    # 32 blocks of one expert, whole, and an eighth of the rest of 46,702,792,704 parameters.
    expert = 3 * 4096 * 14336
    assert rank.weights_bytes == rank.gradients_bytes == 2 * (32 * expert + (46_702_792_704 - 32 * 8 * expert) // 8)
    # A block's rest is gathered beside the next one's; its expert is there. In no block: a table, a head, a norm.
    block, root = 2 * 4096 * (4096 + 1024) + 8 * 4096 + 2 * 4096, 2 * 32000 * 4096 + 4096
    at = {each["phase"]: each for each in rank.phases}
    assert at["layer 31, backward"]["gathered_bytes"] == 2 * (root + 2 * block)
    # Of 4,096 tokens go 2 rows each to their experts, and as many come from other ranks.
    kept = {line["path"]: line["bytes"] for line in rank.lines}
    assert kept["blocks.*.mlp.experts.sent"] == kept["blocks.*.mlp.experts.down_proj"] == 32 * 2 * 4096 * 4096 * 2
    assert (
        not rank.exact
        and rank.sent_bytes == tfacct.load("mixtral-8x7b").comms(fsdp=8, ep=8, train=True, ctx="4k").sent_bytes
    )


def test_the_fullest_rank_receives_more() -> None:
    even, uneven = (
        tfacct.load("mixtral-8x7b").train(ctx="4k", fsdp=8, ep=8, **more) for more in ({}, {"imbalance": 2})
    )
    kept = [{line["path"]: line["bytes"] for line in one.lines} for one in (even, uneven)]
    for name in ("sent", "product", "order"):
        assert kept[1][f"blocks.*.mlp.experts.{name}"] == 2 * kept[0][f"blocks.*.mlp.experts.{name}"]
    assert kept[1]["blocks.*.mlp.experts.down_proj"] == kept[0]["blocks.*.mlp.experts.down_proj"]
    assert any("receives 2 times as many rows as the mean" in said for said in uneven.notes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("mixtral-8x7b --ep 6 --dp 4", "hint: sizes that they have: 2, 4"),
        ("mixtral-8x7b --fsdp 8 --ep 8 --recompute attention", "are not counted beside --recompute attention"),
        ("llama-3.1-8b --fsdp 8 --ep 8", "no experts for --ep 8 to divide"),
    ],
)
def test_what_is_not_counted_is_refused_by_name(run: Any, arguments: str, said: str) -> None:
    ran = run("train", *arguments.split())
    assert ran.code == 2 and said in " ".join(ran.err.split()), ran.err
