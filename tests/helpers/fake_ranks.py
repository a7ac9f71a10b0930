"""Ranks of a mesh as torch runs them in one process, with collectives that send nothing."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tfacct
from tests.helpers.lazy import lazy
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import Recomputed, collectives

torch_ranks, torch, dist = lazy("tfacct.reference.ranks"), lazy("torch"), lazy("torch.distributed")
device_mesh, fsdp = lazy("torch.distributed.device_mesh"), lazy("torch.distributed.fsdp")
parallel, fake_pg = lazy("torch.distributed.tensor.parallel"), lazy("torch.testing._internal.distributed.fake_pg")
transformers = lazy("transformers")
KINDS = {
    "all_reduce": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "_allgather_base_": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
}
"""torch's operations: DTensor's, and FSDP2's, which write into their first argument."""
Counted = dict[tuple[str, str, str], Counter[int]]
"""Over, when, kind → how many calls have a result of so many bytes."""


def by_call(lines: Iterable[Any]) -> Counted:
    """Collectives call by call. Recomputation is part of the backward pass."""
    found: Counted = {}
    for one in lines:
        assert one.bytes % one.calls == 0
        when = "backward" if one.when == "recompute" else one.when
        found.setdefault((one.over, when, one.kind), Counter())[one.bytes // one.calls] += one.calls
    return found


def accounted(
    config: dict[str, Any], mesh: Mesh, batch: int, tokens: int, train: bool, recomputed: Recomputed | None = None
) -> Counted:
    """The collectives that tfacct counts, by call."""
    ledger, at = tfacct.load(config).loaded.ledger, Workload(tokens, tokens, batch).axes()
    return by_call(collectives(ledger, mesh, at, 32, train=train, recomputed=recomputed))


@contextmanager
def fake_ranks(count: int, rank: int = 0) -> Iterator[None]:
    dist.init_process_group("fake", rank=rank, world_size=count, store=fake_pg.FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def plan_of(model: Any, mesh: Mesh) -> dict[str, Any]:
    """torch's plan for each module, as its tutorials of tensor and sequence parallelism have it."""
    return torch_ranks.plan_of(model, sp=mesh.sp, together=mesh.sp or mesh.plan == "megatron")


def sharded(model: Any, mesh: Mesh) -> None:
    ranks = device_mesh.init_device_mesh("cpu", (mesh.fsdp, mesh.tp), mesh_dim_names=("fsdp", "tp"))
    if mesh.tp > 1:
        parallel.parallelize_module(model, ranks["tp"], plan_of(model, mesh))
        if model.config.tie_word_embeddings:  # which the plan takes apart
            model.lm_head.weight = model.model.embed_tokens.weight
    if mesh.fsdp > 1:
        for block in model.model.layers if hasattr(model, "model") else model.transformer.h:
            fsdp.fully_shard(block, mesh=ranks["fsdp"])
        fsdp.fully_shard(model, mesh=ranks["fsdp"])


def watched(found: Counted, when: str) -> Any:
    """Count the collectives that run inside."""

    def sent(namespace: str, kind: str, size: int) -> None:
        over = "fsdp" if namespace == "c10d" else "tp"
        found.setdefault((over, when, kind), Counter())[size] += 1

    return torch_ranks.watching(KINDS, sent)


def observed(model: Any, mesh: Mesh, batch: int, tokens: int) -> Counted:
    """Collectives of torch in a forward and a backward pass, with the sums of gradients that it leaves partial."""
    found: Counted = {}
    with fake_ranks(mesh.ranks):
        sharded(model, mesh)
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        with watched(found, "forward"):
            logits = model(input_ids=ids, position_ids=torch.arange(tokens)[None]).logits
        with watched(found, "backward"):
            (logits.to_local() if hasattr(logits, "to_local") else logits).sum().backward()
            for parameter in model.parameters():
                placed = getattr(parameter.grad, "placements", ())
                if any(placement.is_partial() for placement in placed):
                    parameter.grad.full_tensor()  # as the optimizer asks for it
    return found


def random_config(kind: str, rng: random.Random, mesh: Mesh) -> dict[str, Any]:
    """A small config whose axes the mesh divides."""
    kv, group = mesh.tp * rng.choice((1, 2)), rng.choice((1, 2, 3))
    if kind == "gpt2":
        heads = mesh.fsdp * rng.randint(1, 3)  # what is fused there is divided without padding; tables are padded
        width = {"n_head": heads, "n_embd": 2 * heads, "n_layer": rng.randint(1, 3), "n_inner": heads * 6}
        return {
            "model_type": kind,
            **width,
            "vocab_size": mesh.fsdp * rng.randint(5, 20),
            "n_positions": mesh.fsdp * 64,
        }
    return {
        "model_type": kind,
        "hidden_size": kv * group * rng.randint(2, 5),
        "num_attention_heads": kv * group,
        "num_key_value_heads": kv,
        "head_dim": 2 * rng.randint(1, 5),
        "intermediate_size": mesh.tp * rng.randint(3, 15),
        "vocab_size": mesh.tp * rng.randint(5, 20),
        "num_hidden_layers": rng.randint(1, 3),
        "max_position_embeddings": 128,
        "tie_word_embeddings": rng.choice((True, False)),
    }


def built(config: dict[str, Any], attention: str | None = None) -> Any:
    tokens = {"pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
    own = transformers.AutoConfig.for_model(**{**config, "use_cache": False, **tokens})
    own._attn_implementation = attention or ("eager" if config["model_type"] == "gemma2" else "sdpa")
    return transformers.AutoModelForCausalLM.from_config(own)
