"""What one rank of a layout stores and sends, by the rules and by the class as sharded by torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from tfacct.architecture.parts import Attention, Experts, LatentAttention
from tfacct.base.errors import ConfigError, TfacctError, UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.base.units import dtype_bits
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import Mesh, padded_axes, replicated_heads
from tfacct.parallel.model_collectives import stage_collectives
from tfacct.parallel.pipeline import blocks_in, microbatches, part, stages
from tfacct.parallel.rules import collectives
from tfacct.parallel.shard_shapes import shard
from tfacct.parallel.support import ROUTING, check_mesh, check_shardable, routing_bits
from tfacct.parallel.verified import verified
from tfacct.verify.checks import Check, config_errors, reference_module, renamed

USUAL = (Mesh(2, fsdp=2), Mesh(2), Mesh(fsdp=2))
"""Default layouts: the first that works is checked."""
NOT_RUN = (
    ("dp", "torch's buckets need real tensors", "use it with fsdp (HSDP)"),
    ("ulysses", "neither torch nor transformers implements it", "use a cp ring"),
)
"""Axes that are not checked, the reason, and what to check instead."""
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
"""Config fields with the number of layers."""
TWO = 2
"""Number of layers that run, so that the first and the last differ."""


@record
class RankChecks:
    """One model, its layout, and the checks of its fullest rank. `published`: transformers' plan shards it, not
    torch's. `traced`: layers that ran, and layers of the model."""

    model: LoadedModel
    work: Workload
    checks: list[Check]
    traced: tuple[int, int]
    mesh: Mesh
    published: bool

    @property
    def plan(self) -> str:
        """The library whose plan shards the class."""
        return "transformers" if self.published else "torch"


def check_verifiable(mesh: Mesh) -> None:
    """Raises UsageError for a layout that cannot be verified, with one that can."""
    for axis, reason, hint in NOT_RUN:
        if (size := getattr(mesh, axis)) > 1 and (axis != "dp" or mesh.fsdp == 1):
            raise UsageError(f"{option(axis, size)} is not verified here: {reason}", hint)
    if mesh.cp > 1 and mesh.cp_method != "ring":
        given = option("cp_method", mesh.cp_method)
        raise UsageError(f"{given} is not verified, because torch runs a ring", "leave it out")
    if mesh.pp > 1 and (mesh.ranks > mesh.pp or mesh.schedule == "zero-bubble"):
        other = "another axis" if mesh.ranks > mesh.pp else "zero bubble"
        raise UsageError(f"{option('pp', mesh.pp)} is not verified with {other}", f"use {option('pp')} alone")
    if mesh.imbalance != 1:
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        raise UsageError(f"{given} is not verified, because routing is assumed even", "leave it out")
    if mesh.zero:
        reason = "buckets depend on the engine"
        raise UsageError(f"{option('zero', mesh.zero)} is not verified here: {reason}", f"{option('fsdp')} is")


def layout_for(model: LoadedModel, mesh: Mesh | None) -> tuple[Mesh, bool]:
    """The layout of the check, and whether transformers' plan shards the model. Raises TfacctError."""
    errors: list[TfacctError] = []
    for one in (mesh,) if mesh is not None else USUAL:
        try:
            check_shardable(model, replace(one, sp=False))
            check_mesh(model, one)
            return one, _by_published_plan(model, one)
        except TfacctError as error:
            errors.append(error)
    raise errors[0]


def _by_published_plan(model: LoadedModel, mesh: Mesh) -> bool:
    """True if transformers' plan shards the class. Raises ConfigError for a class without a plan."""
    if not model.config.hf_module_paths() or model.config.hf_unsupported():
        raise ConfigError(f"{model.name}: there is no transformers class to check against")
    experts = any(isinstance(part, Experts) for part in model.architecture.parts())
    if mesh.tp > 1 and replicated_heads(model.ledger, mesh):
        raise ConfigError(f"{model.name}: no plan replicates heads over {option('tp', mesh.tp)} ranks")
    divides = not padded_axes(model.ledger, mesh)  # torch's row-parallel matmuls fail if a width does not divide evenly
    routed = mesh.sp and experts and any(verified(model.family, fact) for fact in ROUTING)
    if mesh.ep > 1 and not verified(model.family, "published_plan") and not routed:
        what = f"{model.name}: no {option('ep', mesh.ep)} plan was checked against its class"
        raise ConfigError(what, f"leave {option('ep')} out")
    if mesh.tp == 1 or (verified(model.family, "torch_plan") and not experts and divides):
        return False
    latent = mesh.sp and model.architecture.having(LatentAttention) and not experts
    if (routed or latent) and divides:
        return False  # torch's plan for everything except experts
    if mesh.sp or mesh.plan != "torch" or not verified(model.family, "published_plan"):
        how = option("sp", True) if mesh.sp else option("tp", mesh.tp)
        raise ConfigError(f"{model.name}: no {how} plan was checked against its class", f"use {option('fsdp')}")
    return True


def rank_checks(
    given: LoadedModel, work: Workload, mesh: Mesh, dtype: str, *, published: bool, all_layers: bool
) -> RankChecks:
    """Parameters and collectives of the fullest rank, by the rules and by the class. Raises UsageError for a class that
    cannot run this way."""
    if mesh.pp > 1:
        blocks = blocks_in(given.ledger)
        return RankChecks(given, work, _stage_checks(given, work, mesh, dtype), (blocks, blocks), mesh, published=False)
    two = None if all_layers else _with_layers(given, TWO)
    model = two or given
    if published and tied(model):
        model = model.with_fields({**model.changed, "tie_word_embeddings": False})
    bits = dtype_bits(dtype)
    sent = collectives(
        model.ledger,
        mesh,
        work.axes(),
        bits,
        train=True,
        shares=routing_bits(model, mesh, bits, train=True),
        modules=model.config.hf_modules,
        after="gathered" if published else "sharded",
    )
    seen = _step(model, work, mesh, dtype, published=published)
    around = _ring(model, work, mesh, dtype) if mesh.cp > 1 else Counter()
    if mesh.sequence_shards > 1 and mesh.fsdp == 1:
        sent = [one for one in sent if one.of != "weights"]  # gradients are reduced in buckets, which are not checked
    checks = _checks(stored_elements(model, mesh), seen.stored, sent, seen.sent + around, "parameters of rank 0")
    layers = sum(stack.count for stack in given.architecture.stacks)
    return RankChecks(given, work, checks, (layers if two is None else TWO, layers), mesh, published=published)


def tied(model: LoadedModel) -> bool:
    """True if the head shares the embedding's weight."""
    return model.architecture.head is not None and model.architecture.head.tied


def _with_layers(given: LoadedModel, count: int) -> LoadedModel | None:
    """The model with `count` layers; None if it has no more, or layers of several kinds."""
    field = next((name for name in LAYERS if name in given.raw), None)
    shape = given.architecture
    if field is None or shape.encoder is not None or len(shape.stacks) > 1 or shape.stacks[0].count <= count:
        return None
    try:
        found = given.with_fields({**given.changed, field: count})
    except ConfigError:  # a list with one entry per layer
        return None
    return found if [stack.count for stack in found.architecture.stacks] == [count] else None


def _stage_checks(model: LoadedModel, work: Workload, mesh: Mesh, dtype: str) -> list[Check]:
    """Checks of the messages of all stages by torch's schedule, and of the parameters of the fullest stage by the
    class."""
    module, stages_of_ranks = _module("passing"), stages(blocks_in(model.ledger), mesh)
    times = microbatches(mesh, work.axes(), train=True)
    if mesh.schedule == "1f1b" and times < mesh.pp:
        reason = f"torch's 1F1B needs at least {mesh.pp:,} micro-batches for {mesh.pp:,} stages, not {times:,}"
        raise UsageError(reason, f"give a larger {option('batch')}, or {option('schedule', 'gpipe')}")
    width = next(group.axes["D"] for group in model.ledger.groups if group.numbers)
    shape = (work.batch // times, work.tokens, width)
    seen: Counter[tuple[str, str, int]] = Counter()
    for rank in range(mesh.pp):
        sent = module.messages_sent(mesh.pp, rank, mesh.chunks, times, mesh.schedule, shape, dtype)
        for (when, size), count in sent.items():
            seen[when, "send", size] += count
    stored = [
        {tensor.path: int(tensor.elements) for tensor in part(model.ledger, each).tensors(unfolded=True)}
        for each in stages_of_ranks
    ]
    fullest = max(range(mesh.pp), key=lambda rank: sum(stored[rank].values()))
    named = renamed(stored[fullest], model.config.hf_module_paths(), model.config.hf_tensor_names())
    blocks = [[stage.blocks for stage in each] for each in stages_of_ranks]
    measured = module.parameters_of_rank(model.of_class, blocks, fullest, model.config.task_head.auto)
    every = stage_collectives(model, mesh, work.axes(), dtype_bits(dtype), train=True)
    sends = [one for lines in every for one in lines if one.kind == "send"]
    return _checks(named, measured, sends, seen, f"parameters of stage {fullest + 1}")


def _ring(model: LoadedModel, work: Workload, mesh: Mesh, dtype: str) -> Counter[tuple[str, str, int]]:
    module = _module("passing")
    found: Counter[tuple[str, str, int]] = Counter()
    kinds: Counter[tuple[int, int, int]] = Counter()
    for stack in model.architecture.stacks:
        part = stack.block.attention
        assert isinstance(part, Attention)  # the only kind with a rule for cp
        kinds[part.kv_heads * part.group // mesh.tp, part.kv_heads // mesh.tp, part.head_dim] += stack.count
    for heads, blocks in kinds.items():
        found += module.ring(module.Heads(*heads), blocks, mesh.cp, work.batch, work.tokens // mesh.cp, dtype)
    return found


def _checks(
    stored: dict[str, int],
    measured_stored: Mapping[str, int],
    sent: Sequence[Collective],
    measured_sent: Mapping[tuple[str, str, int], int],
    name: str,
) -> list[Check]:
    """Parameters, calls and bytes, by the rules and by the class."""
    calls: Counter[str] = Counter()
    for one in sent:
        calls[_call(one.when, one.kind, one.bytes // one.calls)] += one.calls
    measured_calls = Counter({_call(*which): count for which, count in measured_sent.items()})
    moved: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for one in sent:
        moved[0][f"{one.when} {one.kind}"] += one.bytes
    for (when, kind, size), count in measured_sent.items():
        moved[1][f"{when} {kind}"] += count * size
    return [
        Check(name, "elements", stored, dict(measured_stored)),
        Check("calls of collectives", "calls", calls, measured_calls),
        Check("bytes of their results", "bytes", *moved),
    ]


def stored_elements(model: LoadedModel, mesh: Mesh) -> dict[str, int]:
    """Elements that the fullest rank stores, by the class's parameters."""
    counts: Counter[str] = Counter()
    for tensor in model.ledger.tensors(unfolded=True):
        counts[tensor.path] += int(shard(tensor.parameter, tensor.axes, mesh).elements)
    return renamed(counts, model.config.hf_module_paths(), model.config.hf_tensor_names())


def _call(when: str, kind: str, size: int) -> str:
    return f"{when} {kind} of {size:,} bytes"


def _step(model: LoadedModel, work: Workload, mesh: Mesh, dtype: str, *, published: bool) -> Any:
    layout = {
        "tp": mesh.tp,
        "fsdp": mesh.weight_shards,
        "dp": mesh.dp,
        "ep": mesh.ep,
        "sp": mesh.sp,
        "together": mesh.sp or mesh.plan == "megatron",
    }
    size: dict[str, Any] = {"batch": work.batch, "tokens": work.tokens // mesh.sequence_shards, "source": work.source}
    shape = model.architecture
    encodes = shape.encoder is not None or not all(getattr(part, "causal", True) for part in shape.attentions)
    which = {"auto": model.config.task_head.auto, "encodes": encodes}
    ranks = _module("ranks")
    try:
        with config_errors(model):
            return ranks.step(model.of_class, **layout, **size, **which, dtype=dtype, published=published)
    except (AssertionError, RuntimeError) as error:  # weights of two dtypes, which fully_shard does not support
        reason = f"{model.name}: torch cannot shard its class this way: {cut(str(error), 200)}"
        raise UsageError(reason, f"leave {option('fsdp' if isinstance(error, AssertionError) else 'tp')} out") from None


def _module(name: str) -> ModuleType:
    return reference_module(name, "the checks of a layout need torch and transformers", "measure", "transformers")
