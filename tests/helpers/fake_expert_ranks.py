"""Ranks of expert parallelism as transformers' plans run them, and the collectives that are counted for them."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import tfacct
from tests.helpers.fake_ranks import by_call, fake_ranks
from tests.helpers.lazy import lazy
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import fused_modules
from tfacct.parallel.rules import collectives
from tfacct.parallel.support import routing_bits

torch_ranks, torch, device_mesh = lazy("tfacct.reference.ranks"), lazy("torch"), lazy("torch.distributed.device_mesh")
fsdp, distributed = lazy("torch.distributed.fsdp"), lazy("transformers.distributed")
expert_parallel = lazy("transformers.distributed.expert_parallel")
tensor_parallel = lazy("transformers.distributed.tensor_parallel")
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
    """A small config whose axes the mesh divides."""
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
    """The collectives that tfacct counts, by call. Recomputation is part of the backward pass."""
    loaded = tfacct.load(config).loaded
    shares = routing_bits(loaded, mesh, bits, train=train)
    more = {"after": "gathered", "shares": shares, "modules": fused_modules(loaded), **more}
    at = Workload(tokens, tokens, batch).axes()
    by_axis = by_call(collectives(loaded.ledger, mesh, at, bits, train=train, **more))
    found: Counted = {}
    for (_, when, kind), sizes in by_axis.items():
        found.setdefault((when, kind), Counter()).update(sizes)
    return found


def watched(found: Counted, when: str) -> Any:
    """Count the collectives that run inside."""

    def sent(_: str, kind: str, size: int) -> None:
        found.setdefault((when, kind), Counter())[size] += 1

    return torch_ranks.watching(KINDS, sent)


def exchanged(found: Counted, when: Callable[[], str]) -> Any:
    """Count the tokens sent to experts and back; every rank sends this one as much as it sends itself."""

    def record(received: Any, sent: Any, group: Any) -> None:
        received.copy_(sent[:1].expand_as(sent))
        found.setdefault((when(), "all-to-all"), Counter())[sent.numel() * sent.element_size()] += 1

    return patch("transformers.distributed.expert_parallel.all_to_all_single", record)


def balanced(model: Any) -> None:
    """Make every router distribute tokens evenly, on all ranks alike."""

    def dealt(forward: Any, experts: int) -> Any:
        def run(*args: Any) -> Any:
            logits, weights, chosen = forward(*args)
            return logits, weights, (torch.arange(chosen.numel()) % experts).view_as(chosen)

        return run

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.forward = dealt(module.forward, module.num_experts)


def planned(model: Any, mesh: Mesh) -> None:
    """Shard a model by transformers' plans."""
    if model.config.model_type == "deepseek_v3":  # has V2's attention, which its own plan leaves whole
        from transformers import DeepseekV2Config

        rules = {name: style for name, style in DeepseekV2Config.base_model_tp_plan.items() if "self_attn" in name}
        model.tp_plan = {**model.tp_plan, **{f"model.{name}": style for name, style in rules.items()}}
    asked = distributed.DistributedConfig(tp_size=mesh.tp, fsdp_size=mesh.fsdp, ep_size=mesh.ep)
    by_tensors, by_experts, _ = model._resolve_parallel_plans(asked)
    ranks = device_mesh.init_device_mesh("cpu", (mesh.fsdp, mesh.tp), mesh_dim_names=("fsdp", "tp"))
    if mesh.tp > 1:
        tensor_parallel.apply_tensor_parallelism(model, ranks["tp"], by_tensors)
    if mesh.ep > 1:
        divided = device_mesh.init_device_mesh("cpu", (mesh.expert_shards, mesh.ep), mesh_dim_names=("efsdp", "ep"))
        expert_parallel.apply_expert_parallelism(model, divided["ep"], ranks["tp"], by_experts)
    if mesh.fsdp == 1:
        return
    every = [module for name, module in model.named_modules() if name.endswith("mlp.experts") and mesh.ep > 1]
    apart = {weight for module in every for weight in module.parameters()} if mesh.expert_shards == 1 else set()
    for module in every if mesh.expert_shards > 1 else ():
        fsdp.fully_shard(module, mesh=divided["efsdp"])
    for block in (*model.model.layers, model):
        fsdp.fully_shard(block, mesh=ranks["fsdp"], ignored_params=apart)


def observed(model: Any, mesh: Mesh, batch: int, tokens: int, *, train: bool) -> tuple[Counted, int]:
    """Collectives, and the elements that rank 0 stores, which has the most."""
    found: Counted = {}
    when = "forward"
    if getattr(model, "_can_set_experts_implementation", lambda: False)():
        model.set_experts_implementation("eager")
    balanced(model)

    with fake_ranks(mesh.ranks), exchanged(found, lambda: when), ExitStack() as stack:
        planned(model, mesh)
        local = sum(getattr(weight, "_local_tensor", weight).numel() for weight in model.parameters())
        if not train:
            stack.enter_context(torch.no_grad())
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        with watched(found, "forward"):
            logits = model(input_ids=ids, position_ids=torch.arange(tokens)[None]).logits
        if train:
            when = "backward"
            with watched(found, when):
                logits.sum().backward()
    return found, local
