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
from tfacct.loading.skipped import Skipped
from tfacct.parallel.mesh import TP_AXES, Mesh, checked_axes, mesh_on
from tfacct.parallel.pipeline import blocks_in, distinct_stages, part, stages
from tfacct.parallel.shard_shapes import with_rank_experts, with_rank_heads
from tfacct.parallel.support import (
    check_axes,
    check_formats,
    check_shardable,
    gathers_heads,
    joint_norm,
    norms_all_heads,
    supported_on,
)


def on_ranks(models: Sequence[LoadedModel], tp: int, ep: int = 1, *, stored: bool = False) -> list[LoadedModel]:
    """The models on one of `tp` ranks: shards of heads, MLP width and vocabulary. `ep`: ranks that share whole experts,
    `tp` of them per batch. `stored`: nothing but weights and caches is counted. Raises TfacctError."""
    check_size(option("tp"), tp)
    check_size(option("ep"), ep)
    if ep % tp and ep > 1:
        problem = f"{option('ep', ep)} is not a multiple of {option('tp', tp)}: whole tp groups share the experts"
        raise UsageError(problem, f"such as {option('ep', tp)}")
    return [_on_rank(model, Mesh(tp, ep=ep), stored) if tp * ep > 1 else model for model in models]


def _on_rank(model: LoadedModel, mesh: Mesh, stored: bool) -> LoadedModel:
    check_shardable(model, mesh, stored=stored)
    shape, ledger = _with_shards(model, mesh)
    if mesh.ep > 1:
        ledger = with_rank_experts(ledger, mesh)
    return replace(model, architecture=shape, ledger=ledger)


def _with_shards(model: LoadedModel, mesh: Mesh) -> tuple[Transformer, Ledger]:
    """The model sharded by `tp`, with whole experts if `ep` shards them, and its ledger: the same for every `ep`."""
    key = _with_shards, mesh.tp, mesh.ep > 1
    if key in model.ledger.known:
        known: tuple[Transformer, Ledger] = model.ledger.known[key]
        return known

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

    shape = model.architecture.mapped(divided)
    found = shape, with_rank_heads(shape.ledger(), mesh)
    model.ledger.known[key] = found
    return found


def shard_weights(models: Sequence[LoadedModel], tp: int, dtype: str | None, ep: int = 1) -> Sequence[LoadedModel]:
    """The models as one rank stores them; unchanged for a single rank. Raises TfacctError for weights in a format whose
    blocks would be cut."""
    if (tp, ep) == (1, 1):
        return models
    sharded = on_ranks(models, tp, ep, stored=True)
    for whole, one in zip(models, sharded, strict=True):
        check_formats(whole, one, dtype)
    return sharded


def shard_models(
    models: Sequence[LoadedModel], mesh: Mesh | None, dtype: str | None
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[Skipped]]:
    """The models that a mesh fits, whole and as one rank of all stages together stores them, and the other models.
    Raises TfacctError if none fits."""
    if mesh is None:
        return models, models, []

    def shard(one: LoadedModel) -> LoadedModel:
        check_stage_formats(one, mesh.pp, dtype)
        return shard_weights([_staged(one, mesh.pp)], mesh.tp, dtype, mesh.ep)[0]

    return supported_on(models, shard)


def shard_for_flops(
    models: Sequence[LoadedModel], mesh: Mesh | None, *, stored: bool = False
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[Skipped]]:
    """The same for counts that do not depend on the format of weights. `stored`: only caches are counted."""
    if mesh is None:
        return models, models, []
    return supported_on(models, lambda one: on_ranks([_staged(one, mesh.pp)], mesh.tp, mesh.ep, stored=stored)[0])


def check_stage_formats(model: LoadedModel, pp: int, dtype: str | None) -> None:
    """Raises UsageError for stages of weights in a format whose types depend on the layer."""
    if pp > 1 and (how := model.storage(dtype)).by_block:
        raise UsageError(
            f"{model.name}: in {how.name}, matrix types differ between layers, which {option('pp')} does not support",
            f"another {option('dtype')}, or {option('pp', 1)}",
        )


def _staged(model: LoadedModel, pp: int) -> LoadedModel:
    """The model. Raises TfacctError if it does not support these stages."""
    if pp != 1:
        check_axes(model, checked_axes(Mesh(pp=pp)))
    return model


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
            numbers = tuple(number for stage in every[first] for number in layers if number in stage.blocks)
            if numbers:
                stacks.append(replace(stack, count=len(numbers), numbers=numbers))
        cut = replace(shape, stacks=tuple(stacks))
        found.append((first + 1, replace(model, architecture=cut, ledger=part(model.ledger, every[first]))))
    return found
