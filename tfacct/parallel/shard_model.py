"""A model on one rank: shards of heads, widths and vocabulary, experts, pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfacct.architecture.parts import Attention, Experts, Grouped, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import check_size
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import TP_AXES, Mesh, checked_axes, mesh_on
from tfacct.parallel.pipeline import blocks_in, distinct_stages, part, stages, within
from tfacct.parallel.shard_shapes import with_rank_experts, with_rank_heads
from tfacct.parallel.support import (
    check_axes,
    check_formats,
    check_shardable,
    gathers_heads,
    joint_norm,
    norms_all_heads,
)


def on_ranks(model: LoadedModel, tp: int, ep: int = 1, *, stored: bool = False) -> LoadedModel:
    """The model on one of `tp` ranks: shards of heads, MLP width and vocabulary. `ep`: ranks that share whole experts,
    `tp` of them per batch. `stored`: nothing but weights and caches is counted. Raises TfacctError."""
    check_size(option("tp"), tp)
    check_size(option("ep"), ep)
    if ep % tp and ep > 1:
        problem = f"{option('ep', ep)} is not a multiple of {option('tp', tp)}: whole tp groups share the experts"
        raise UsageError(problem, f"such as {option('ep', tp)}")
    if tp * ep == 1:
        return model
    mesh = Mesh(tp, ep=ep)
    check_shardable(model, mesh, stored=stored)
    shape, ledger = _with_shards(model, mesh)
    if mesh.ep > 1:
        ledger = with_rank_experts(ledger, mesh)
    return replace(model, architecture=shape, ledger=ledger)


def _with_shards(model: LoadedModel, mesh: Mesh) -> tuple[Transformer, Ledger]:
    """The model sharded by `tp`, with whole experts if `ep` shards them, and its ledger: the same for every `ep`."""

    def divided(part: Part) -> Part:
        sharded = {field: axis for field, axis in part.sizes().items() if axis in TP_AXES}
        sizes: dict[str, Any] = {field: mesh.shard_size(axis, getattr(part, field)) for field, axis in sharded.items()}
        if norms_all_heads(part):
            return part
        if isinstance(part, Grouped):
            sizes["group"] = part.heads // mesh.tp // sizes["kv_heads"]  # fewer if several ranks have the same head
        if isinstance(part, Experts) and mesh.ep > 1:  # experts are whole, but a shared expert of the same width is not
            shared = {"shared": sizes["width"], "shared_alike": False} if part.shared_alike else {}
            sizes |= {"width": part.width, **shared}
        return replace(part, **sizes) if sizes else part

    def found() -> tuple[Transformer, Ledger]:
        shape = model.architecture.mapped(divided)
        return shape, with_rank_heads(shape.ledger(), mesh)

    return model.ledger.once((_with_shards, mesh.tp, mesh.ep > 1), found)


def shard_weights(model: LoadedModel, tp: int, dtype: str | None, ep: int = 1) -> LoadedModel:
    """The model as one rank stores it; unchanged for a single rank. Raises TfacctError for weights in a format whose
    blocks would be cut."""
    of_rank = on_ranks(model, tp, ep, stored=True)
    if of_rank is not model:
        check_formats(model, of_rank, dtype)
    return of_rank


def shard_for_memory(model: LoadedModel, mesh: Mesh, dtype: str | None) -> LoadedModel:
    """The model as one rank of all stages together stores it. Raises TfacctError."""
    check_stage_formats(model, mesh.pp, dtype)
    _check_stages(model, mesh)
    return shard_weights(model, mesh.tp, dtype, mesh.ep)


def shard_for_flops(model: LoadedModel, mesh: Mesh, *, stored: bool = False) -> LoadedModel:
    """The same for counts that do not depend on the format of weights. `stored`: only caches are counted."""
    _check_stages(model, mesh)
    return on_ranks(model, mesh.tp, mesh.ep, stored=stored)


def check_stage_formats(model: LoadedModel, pp: int, dtype: str | None) -> None:
    """Raises UsageError for stages of weights in a format whose types depend on the layer."""
    if pp > 1 and (how := model.storage(dtype)).by_block:
        raise UsageError(
            f"{model.name}: in {how.name}, matrix types differ between layers, which {option('pp')} does not support",
            f"another {option('dtype')}, or {option('pp', 1)}",
        )


def _check_stages(model: LoadedModel, mesh: Mesh) -> None:
    """Raises TfacctError if the model does not support these stages."""
    if mesh.pp > 1:
        check_axes(model, checked_axes(Mesh(pp=mesh.pp)))


def on_devices(
    models: Sequence[LoadedModel], limit: MemoryLimit, mesh: Mesh | None
) -> tuple[Sequence[LoadedModel], Mesh | None]:
    """The models as the devices of a limit share them to serve, and the mesh. Raises UsageError."""
    mesh = mesh_on(limit, mesh)
    return models if mesh is None else [as_served(model) for model in models], mesh


def as_served(model: LoadedModel) -> LoadedModel:
    """The model as engines shard it: by heads, also under a norm over all heads."""
    if not gathers_heads(model):
        return model

    def by_head(part: Part) -> Part:
        norm = joint_norm(part)
        return replace(part, qk_norm=norm._replace(per_head=True)) if norm and isinstance(part, Attention) else part

    shape = model.architecture.mapped(by_head)
    return replace(model, architecture=shape, ledger=shape.ledger())


def stages_of(model: LoadedModel, pp: int) -> list[tuple[int, LoadedModel]]:
    """The model on `pp` ranks, one for each distinct stage, with its index."""
    if pp == 1:
        return [(1, model)]
    every = stages(blocks_in(model.ledger), Mesh(pp=pp))
    found = []
    for first, *_ in distinct_stages(model.ledger, every).values():
        shape = model.architecture
        stacks = []
        for stack, layers in zip(shape.stacks, shape.numbers(), strict=True):
            numbers = tuple(number for stage in every[first] for number in within(layers, stage))
            if numbers:
                stacks.append(replace(stack, count=len(numbers), numbers=numbers))
        cut = replace(shape, stacks=tuple(stacks))
        found.append((first + 1, replace(model, architecture=cut, ledger=part(model.ledger, every[first]))))
    return found
