"""What one rank stores and sends when torch shards a transformers model, for cross-checks.

The process group sends nothing and the tensors have no data, so one process represents all ranks at full size. This
module contains no sharding rules: the plans are those of torch's tutorials and of transformers.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tfacct.base.errors import UsageError
from tfacct.meta.dispatch import DispatchMode
from tfacct.meta.model import DTYPES, config_of, maker
from tfacct.reference import encoding
from tfacct.reference.exchanging import evenly, exchange

KINDS = {
    "all_reduce": "all-reduce",
    "allreduce_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "_allgather_base_": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "alltoall_base_": "all-to-all",
}
"""Operations of torch, DTensor and FSDP2, and the names of collectives here."""
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "c_fc")
ROWS = ("o_proj", "down_proj", "c_proj")
PACKED = "transformers.masking_utils.find_packed_sequence_indices"
"""A function that reads the values of positions, which do not exist here."""
HEADS = ("q_norm", "k_norm")
"""Modules of the classes: column-parallel and row-parallel matmuls, and norms over the heads of a rank."""
LATENT_NORMS = ("q_a_layernorm", "kv_a_layernorm")
"""Norms outside the residual stream, which are not sharded."""


RESULTS = ("logits", "last_hidden_state", "prediction_logits", "seq_relationship_logits", "start_logits", "end_logits")
"""Possible outputs of a class; all those present are summed."""


class Seen(NamedTuple):
    """What a rank stores: elements by parameter; and what it sends: calls by pass, kind and bytes of the result."""

    stored: dict[str, int]
    sent: Counter[tuple[str, str, int]]


def step(
    config: Mapping[str, Any],
    *,
    tp: int,
    fsdp: int,
    dp: int,
    ep: int,
    sp: bool,
    together: bool,
    published: bool,
    dtype: str,
    batch: int,
    tokens: int,
    source: int,
    auto: str,
    encodes: bool,
) -> Seen:
    """A forward and a backward pass of rank 0, the fullest one, without a loss, for the class built by `auto`.
    `encodes`: it has an encoder, alone or before a decoder, which reads `source` tokens. `dp`: replicas of the ranks
    that shard weights, over which scattered gradients are reduced. `ep`: number of ranks that shard the experts, with
    even routing. `sp`: the tokens of the residual stream are sharded. `together`: gradients of one tensor are summed
    before they are reduced. `published`: by transformers' plan.

    Raises UsageError in a process that already has a process group; ValueError, KeyError or TypeError for a config that
    the class does not accept.
    """
    made = config_of(config)
    made.use_cache = False
    sent: Counter[tuple[str, str, int]] = Counter()
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_ranks(tp * fsdp * dp), warnings.catch_warnings(), fake, evenly(ep):
        warnings.simplefilter("ignore")
        # eager masks of sharded tokens are too small
        model = maker(auto)(made, attn_implementation="sdpa" if sp else "eager", dtype=DTYPES[dtype])
        if getattr(model, "_can_set_experts_implementation", lambda: False)():
            model.set_experts_implementation("batched_mm")
        tied = made.get_text_config().tie_word_embeddings
        plan = None if encodes else (sp, together, published, tied)
        _shard(model, tp, fsdp, dp, ep, plan)
        with _counting(sent, "forward"), patch(PACKED, lambda *_, **__: None):
            given = model(**_read(model.config, encodes, batch, tokens, source))
        with _counting(sent, "backward"):
            sum(_local(given[name]).sum() for name in RESULTS if name in given).backward()
            for parameter in model.parameters():
                gradient = parameter.grad
                if isinstance(gradient, DTensor) and any(placed.is_partial() for placed in gradient.placements):
                    gradient.full_tensor()  # torch delays the sum until the optimizer needs it
        stored = {name: _local(parameter).numel() for name, parameter in model.named_parameters()}
    return Seen(stored, sent)


def _read(config: Any, encodes: bool, batch: int, tokens: int, source: int) -> dict[str, Any]:
    """Arguments of the class. Two audio frames are one token."""
    ids = torch.zeros(batch, tokens, dtype=torch.long)
    if source and (bins := getattr(config, "num_mel_bins", None)):
        return {"input_features": torch.zeros(batch, bins, 2 * source, dtype=config.dtype), "decoder_input_ids": ids}
    if source:
        return {"input_ids": torch.zeros(batch, source, dtype=torch.long), "decoder_input_ids": ids}
    return {"input_ids": ids} if encodes else {"input_ids": ids, "position_ids": torch.arange(tokens)[None]}


@contextmanager
def fake_ranks(count: int, rank: int = 0) -> Iterator[None]:
    """A process group of this size that sends nothing; this process is one of its ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise UsageError("this process already has a process group", "run it in another process")
    dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
    try:
        with patch.object(DeviceMesh, "__init__", _on_real_tensors(DeviceMesh.__init__)):
            yield
    finally:
        dist.destroy_process_group()


def _on_real_tensors(made: Callable[..., None]) -> Callable[..., None]:
    """Creates a mesh on real tensors, because it reads their values."""

    def run(*args: Any, **named: Any) -> None:
        with unset_fake_temporarily():
            made(*args, **named)

    return run


def _shard(model: Any, tp: int, fsdp: int, dp: int, ep: int, plan: tuple[bool, bool, bool, bool] | None) -> None:
    """Shards a model. `plan`: for a decoder, `sp`, `together`, `published` and whether its head is tied; an encoder has
    one plan."""
    sp, together, published, tied = plan or (False, False, False, False)
    with unset_fake_temporarily():
        ranks = init_device_mesh("cpu", (dp, fsdp, tp), mesh_dim_names=("dp", "fsdp", "tp"))
    if tp > 1 and plan is None:
        encoding.shard(model, ranks["tp"], tp)
    elif tp > 1 and published:
        _by_published_plan(model, ranks["tp"], tp, fsdp, ep)
    elif tp > 1:
        parallelize_module(model, ranks["tp"], plan_of(model, sp=sp, together=together, expert_parallel=ep > 1))
        if tied:  # the plan splits it
            model.lm_head.weight = model.get_input_embeddings().weight
    alone = exchange(model, ranks["tp"], tp, fsdp, ep, apart=sp) if ep > 1 else set()
    if fsdp > 1:
        shard_mesh = ranks["dp", "fsdp"] if dp > 1 else ranks["fsdp"]
        blocks = blocks_of(model) if plan is not None else chain.from_iterable(encoding.blocks_of(model))
        for part in (*blocks, model):
            fully_shard(part, mesh=shard_mesh, ignored_params=alone)


def plan_of(model: Any, *, sp: bool, together: bool, expert_parallel: bool = False) -> dict[str, Any]:
    """torch's plan for each module, as in its tutorials on tensor and sequence parallelism. With `expert_parallel`,
    these plans do not shard experts."""
    stream: Placement = Shard(1) if sp else Replicate()
    plan: dict[str, Any] = {}
    gathered = {name for name, module in model.named_modules() if _over_heads(module)}
    inside: tuple[str, ...] = ()
    if sp:
        from tfacct.reference import scattering

        plan, inside = scattering.plan_of(model, expert_parallel=expert_parallel)
    for name, _ in model.named_modules():
        owner, _, leaf = name.rpartition(".")
        if name in plan or name.startswith(inside):
            continue
        if leaf == "embed_tokens":
            plan[name] = RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)
        elif leaf == "lm_head":
            plan[name] = ColwiseParallel(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False)
        elif owner in gathered and leaf in COLUMNS:
            plan[name] = ColwiseParallel(output_layouts=Replicate())
        elif owner in gathered and leaf in ROWS:
            plan[name] = RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)
        elif owner in gathered:
            continue
        elif leaf in COLUMNS:
            plan[name] = ColwiseParallel()
        elif leaf in ROWS:
            plan[name] = RowwiseParallel(output_layouts=stream)
        elif leaf in HEADS:
            plan[name] = SequenceParallel(sequence_dim=2, use_local_output=True)
        elif leaf in LATENT_NORMS:
            continue
        elif leaf.endswith("norm") and sp:
            plan[name] = SequenceParallel(use_local_output=True)
        elif leaf == "self_attn" and together:
            plan[name] = PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": stream},
                desired_input_kwarg_layouts={"hidden_states": Replicate()},
            )
        elif leaf == "mlp" and together:
            plan[name] = PrepareModuleInput(input_layouts=(stream,), desired_input_layouts=(Replicate(),))
    return plan


def _over_heads(attention: Any) -> bool:
    """True for attention with a norm over the queries of more than one head, which needs them gathered."""
    weight = getattr(getattr(attention, "q_norm", None), "weight", None)
    return weight is not None and weight.numel() > attention.head_dim


def _by_published_plan(model: Any, ranks: Any, tp: int, fsdp: int, ep: int) -> None:
    """Shards by the plan that transformers publishes. That of DeepSeek-V3 leaves attention whole, so V2's is used for
    it."""
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    if model.config.model_type == "deepseek_v3":
        from transformers import DeepseekV2Config

        rules = {name: style for name, style in DeepseekV2Config.base_model_tp_plan.items() if "self_attn" in name}
        model.tp_plan = {**model.tp_plan, **{f"model.{name}": style for name, style in rules.items()}}
    config = DistributedConfig(tp_size=tp, fsdp_size=fsdp, ep_size=ep)
    plan, *_ = model._resolve_parallel_plans(config)
    apply_tensor_parallelism(model, ranks, plan)


def blocks_of(model: Any) -> Any:
    """The layers: the longest list of modules that is not inside another."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    count = model.config.get_text_config().num_hidden_layers
    return next(each for each in lists if len(each) == count)


def _local(tensor: Any) -> Any:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@contextmanager
def _counting(sent: Counter[tuple[str, str, int]], when: str) -> Iterator[None]:
    def count(_: str, kind: str, size: int) -> None:
        sent[when, kind, size] += 1

    with watching(KINDS, count):
        yield


def watching(kinds: Mapping[str, str], sent: Callable[[str, str, int], None]) -> DispatchMode:
    """A mode that calls `sent` for each collective: torch's namespace, kind, and bytes of the result.

    `kinds`: torch's operations and the names of collectives here.
    """

    class Watching(DispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # it runs first, and its collectives arrive here
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            if func.namespace in ("_c10d_functional", "c10d") and name in kinds:
                of = args[0] if func.namespace == "c10d" else result
                of = of[0] if isinstance(of, list) else of
                assert isinstance(of, torch.Tensor)
                sent(func.namespace, kinds[name], of.numel() * of.element_size())
            return result

    return Watching()  # type: ignore[no-untyped-call]
