"""What experts send, and what ranks of uneven widths do, against transformers' own plans: ranks that send nothing."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.helpers.collectives import watching
from tests.oracle.test_sharding import built, fake_ranks
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import fused_modules
from tfacct.parallel.rules import collectives
from tfacct.parallel.shard_shapes import stored_elements
from tfacct.parallel.support import routing_bits

KINDS = {
    "all_reduce": "all-reduce",
    "allreduce_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "_allgather_base_": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "alltoall_base_": "all-to-all",
}
"""torch's operations."""

Counted = dict[tuple[str, str], Counter[int]]
"""When, kind → how many calls have a result of so many bytes."""

SIZES: dict[str, dict[str, str]] = {
    "mixtral": {"num_local_experts": "E", "num_experts_per_tok": "A", "intermediate_size": "F"},
    "llama": {"intermediate_size": "F"},
    "qwen3": {"intermediate_size": "F"},
    "deepseek_v2": {"n_routed_experts": "E", "num_experts_per_tok": "A", "moe_intermediate_size": "F"},
    "deepseek_v3": {"n_routed_experts": "E", "num_experts_per_tok": "A", "moe_intermediate_size": "F"},
    "qwen3_moe": {"num_experts": "E", "num_experts_per_tok": "A", "moe_intermediate_size": "F"},
}


def random_config(kind: str, rng: random.Random, mesh: Mesh) -> dict[str, Any]:
    """A small config whose letters the mesh divides."""
    kv, group = mesh.tp * rng.choice((1, 2)), rng.choice((1, 2))
    sizes = {"E": mesh.ep * rng.randint(2, 3), "A": 2, "F": mesh.tp * rng.randint(3, 9)}
    odd = rng.randint(1, mesh.tp - 1) if mesh.fsdp == 1 and mesh.tp > 1 else 0  # fsdp does not divide uneven rows again
    sizes["F"] += odd
    if kind.startswith("deepseek"):
        kv, group = kv * mesh.fsdp, 2  # what the class fuses is not padded
        sizes["F"] *= mesh.fsdp
        latent = {"kv_lora_rank": 4 * rng.randint(3, 6), "q_lora_rank": rng.choice((None, 8))}
        heads = {"qk_nope_head_dim": 2 * rng.randint(2, 4), "qk_rope_head_dim": 4, "v_head_dim": rng.randint(3, 7)}
        more = {**latent, **heads, "n_group": 1, "topk_group": 1, "n_shared_experts": rng.randint(1, 2)}
        more |= {"num_key_value_heads": kv * group, "first_k_dense_replace": rng.randint(0, 1)}
    else:
        more = {"num_key_value_heads": kv, "head_dim": 2 * rng.randint(1, 5)}
    return {
        "model_type": kind,
        "hidden_size": kv * group * rng.randint(2, 5),
        "num_attention_heads": kv * group,
        "intermediate_size": mesh.tp * mesh.fsdp * rng.randint(3, 15),
        "vocab_size": mesh.tp * mesh.fsdp * rng.randint(5, 20) + odd,
        "num_hidden_layers": rng.randint(1, 3),
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
        **more,
        **{field: sizes[axis] for field, axis in SIZES[kind].items()},
    }


def accounted(
    config: dict[str, Any], mesh: Mesh, batch: int, tokens: int, *, train: bool, bits: int = 32, **more: Any
) -> Counted:
    loaded = tfacct.load(config).loaded
    found: Counted = {}
    shares = routing_bits(loaded, mesh, bits, train=train)
    more = {"after": "gathered", "shares": shares, "modules": fused_modules(loaded), **more}
    at = Workload(tokens, tokens, batch).axes()
    for one in collectives(loaded.ledger, mesh, at, bits, train=train, **more):
        assert one.bytes % one.calls == 0
        found.setdefault((one.when, one.kind), Counter())[one.bytes // one.calls] += one.calls
    return found


def watched(found: Counted, when: str) -> Any:
    """Counts the collectives that run inside."""

    def sent(_: str, kind: str, size: int) -> None:
        found.setdefault((when, kind), Counter())[size] += 1

    return watching(KINDS, sent)


def balanced(model: Any) -> None:
    """Let every router deal the tokens out evenly, as all ranks do alike."""
    import torch

    def dealt(forward: Any, experts: int) -> Any:
        def run(*args: Any) -> Any:
            logits, weights, chosen = forward(*args)
            return logits, weights, (torch.arange(chosen.numel()) % experts).view_as(chosen)

        return run

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.forward = dealt(module.forward, module.num_experts)


def planned(model: Any, mesh: Mesh) -> None:
    """Divide a model by transformers' own plans."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers.distributed import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    if model.config.model_type == "deepseek_v3":  # has V2's attention, which its own plan leaves whole
        from transformers import DeepseekV2Config

        rules = {name: style for name, style in DeepseekV2Config.base_model_tp_plan.items() if "self_attn" in name}
        model.tp_plan = {**model.tp_plan, **{f"model.{name}": style for name, style in rules.items()}}
    asked = DistributedConfig(tp_size=mesh.tp, fsdp_size=mesh.fsdp, ep_size=mesh.ep)
    by_tensors, by_experts, _ = model._resolve_parallel_plans(asked)
    ranks = init_device_mesh("cpu", (mesh.fsdp, mesh.tp), mesh_dim_names=("fsdp", "tp"))
    if mesh.tp > 1:
        apply_tensor_parallelism(model, ranks["tp"], by_tensors)
    if mesh.ep > 1:
        divided = init_device_mesh("cpu", (mesh.expert_shards, mesh.ep), mesh_dim_names=("efsdp", "ep"))
        apply_expert_parallelism(model, divided["ep"], ranks["tp"], by_experts)
    if mesh.fsdp == 1:
        return
    every = [module for name, module in model.named_modules() if name.endswith("mlp.experts") and mesh.ep > 1]
    apart = {weight for module in every for weight in module.parameters()} if mesh.expert_shards == 1 else set()
    for module in every if mesh.expert_shards > 1 else ():
        fully_shard(module, mesh=divided["efsdp"])
    for block in (*model.model.layers, model):
        fully_shard(block, mesh=ranks["fsdp"], ignored_params=apart)


def witnessed(model: Any, mesh: Mesh, batch: int, tokens: int, *, train: bool) -> tuple[Counted, int]:
    """Collectives, and the elements that rank 0 stores, the fullest one."""
    import torch

    found: Counted = {}
    if getattr(model, "_can_set_experts_implementation", lambda: False)():
        model.set_experts_implementation("eager")
    balanced(model)

    def told(received: Any, sent: Any, group: Any) -> None:  # every rank sends this one what it sends itself
        received.copy_(sent[:1].expand_as(sent))
        found.setdefault(("forward", "all-to-all"), Counter())[sent.numel() * sent.element_size()] += 1

    with fake_ranks(mesh.ranks), ExitStack() as stack:
        planned(model, mesh)
        local = sum(getattr(weight, "_local_tensor", weight).numel() for weight in model.parameters())
        stack.enter_context(patch("transformers.distributed.expert_parallel.all_to_all_single", told))
        if not train:
            stack.enter_context(torch.no_grad())
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        with watched(found, "forward"):
            logits = model(input_ids=ids, position_ids=torch.arange(tokens)[None]).logits
        if train:
            with watched(found, "backward"):
                logits.sum().backward()
    return found, local


MESHES = {
    "tp": Mesh(tp=2),
    "tp-4": Mesh(tp=4),
    "fsdp": Mesh(fsdp=3),
    "ep": Mesh(tp=2, ep=2),
    "ep-own": Mesh(fsdp=2, ep=2),
    "ep-copies": Mesh(fsdp=4, ep=2),
    "ep-all": Mesh(tp=2, fsdp=2, ep=4),
}


def compared(kind: str, mesh: str, seed: int, *, train: bool, bits: int = 32) -> None:
    import torch

    rng, own = random.Random(f"{kind} {mesh} {seed}"), MESHES[mesh]
    config = random_config(kind, rng, own)
    experts = next((config[field] for field, axis in SIZES[kind].items() if axis == "E"), 1)
    batch, tokens = 2, experts * own.tp * rng.randint(1, 2)
    model = built(config).to(torch.bfloat16 if bits == 16 else torch.float32)
    seen, local = witnessed(model, own, batch, tokens, train=train)
    assert accounted(config, own, batch, tokens, train=train, bits=bits) == seen, config
    assert stored_elements(tfacct.load(config).loaded.ledger, own) == local


VIEW = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
"""Logits of `tp` are a view, of which FSDP warns."""


@VIEW
@pytest.mark.parametrize(
    ("kind", "mesh", "train"),
    [
        ("llama", "tp", True),
        ("mixtral", "tp", True),
        ("deepseek_v2", "tp", True),
        ("qwen3_moe", "ep", False),
        ("mixtral", "ep", True),
        ("qwen3_moe", "ep-own", True),
    ],
)
def test_experts_send_what_transformers_does(kind: str, mesh: str, train: bool) -> None:
    compared(kind, mesh, 0, train=train)


@VIEW
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mesh"), [(kind, mesh) for kind in SIZES for mesh in MESHES if "E" in SIZES[kind].values() or "tp" in mesh]
)
def test_experts_of_random_configs_send_what_transformers_does(kind: str, mesh: str) -> None:
    for seed in range(1, 4):
        for train in (False, True):
            compared(kind, mesh, seed, train=train, bits=16 if seed == 3 else 32)


def test_tokens_go_to_experts_and_come_back() -> None:
    # mixtral-8x7b has 32 blocks; 4,096 tokens of 4,096 numbers in bf16 go to 2 of 8 experts each, which 8 ranks have.
    sent = 4096 * 2 * 4096 * 2
    step = tfacct.load("mixtral-8x7b").comms(fsdp=8, ep=8, train=True, ctx="4k")
    rows = {(one["over"], one["when"], one["kind"]): (one["calls"], one["bytes"]) for one in step.collectives}
    # Before them go 8 numbers of 8 bytes: how many tokens each expert gets.
    assert rows["ep", "forward", "all-to-all"] == (96, 32 * (2 * sent + 8 * 8))
    assert rows["ep", "backward", "all-to-all"] == (64, 32 * 2 * sent)
    # Experts are on one rank each: 32 blocks of 8 experts of 3 products; a router and attention are divided by fsdp.
    experts = 32 * 3 * 4096 * 14336
    assert step.rank_params == tfacct.load("mixtral-8x7b").params(fsdp=8, ep=8).rank_params
    assert step.rank_params == experts + (46_702_792_704 - 8 * experts) // 8
    uneven = tfacct.load("mixtral-8x7b").comms(fsdp=8, ep=8, imbalance=1.5, train=True, ctx="4k")
    more = next(one["bytes"] for one in uneven.collectives if one["kind"] == "all-to-all" and one["when"] == "backward")
    assert 2 * more == 5 * 32 * sent


def test_ranks_of_one_batch_add_up_what_their_experts_make() -> None:
    # 32 blocks: attention's sum and the experts' for each, and the table's.
    for more in ({}, {"ep": 8}):
        token = tfacct.load("mixtral-8x7b").comms(tp=8, **more)
        assert sum(one["bytes"] for one in token.collectives) == (2 * 32 + 1) * 4096 * 2
    assert tfacct.load("mixtral-8x7b").memory(tp=8).total_params == tfacct.load("mixtral-8x7b").comms(tp=8).rank_params


def test_a_latent_is_whole_on_every_rank() -> None:
    model = tfacct.load("deepseek-v2-lite")
    # 27 blocks; a token's 512 + 64 numbers in bf16 are on every rank, whatever divides its heads.
    assert model.memory(ctx="8k", tp=8).kv_cache_bytes == 27 * 8192 * 576 * 2 == model.memory(ctx="8k").kv_cache_bytes
    rows = {(one["when"], one["of"]): one for one in model.comms(tp=8, train=True, ctx="8k").collectives}
    # Forward: attention of 27 blocks, the network of one, experts and a shared network of 26, the table.
    assert sum(one["calls"] for (when, _), one in rows.items() if when == "forward") == 27 + 1 + 2 * 26 + 1
    # Backward: q_proj, what k and v read (one product in the class), and the rotated key, which all heads share; gate
    # and up of 27 networks, the head; experts: tokens and weights.
    sums: Counter[str] = Counter()
    for line in rows["backward", "stream"]["lines"]:
        sums[line["what"]] += line["bytes"]
    assert rows["backward", "stream"]["calls"] == 27 * (1 + 1 + 1 + 2) + 1
    assert sums["blocks.*.attn.kv_a_proj"] == 27 * 8192 * 64 * 2
    assert sums["blocks.*.attn.k_b_proj"] == 27 * 8192 * 512 * 2
    assert rows["backward", "experts"]["bytes"] == 26 * 8192 * (2048 * 2 + 6 * 4)
