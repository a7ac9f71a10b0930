"""Facts and tables of one rank of a parallel layout, next to the whole model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from tfacct.base import units
from tfacct.base.errors import TfacctError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.einsum import divisors
from tfacct.ledger.groups import Ledger
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import values_of
from tfacct.reports.build import MeshFacts

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.parallel.mesh import Mesh

HEADS_GATHERED = (
    "A norm spans all heads, so queries, keys and values are gathered: attention and the KV cache are whole on"
    " each rank, as in the plan that transformers publishes."
)


Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def in_devices(report: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Decorator: errors of a report with a memory limit name its devices instead of the option of their layout."""

    @wraps(report)
    def named(*args: Given.args, **given: Given.kwargs) -> Returned:
        fit = cast("MemoryLimit | None", given.get("fit", given.get("limit")))
        try:
            return report(*args, **given)
        except TfacctError as error:
            if fit is not None and fit.device is not None and fit.count > 1:
                for axis in ("tp", "fsdp"):
                    words = f"{fit.count:,} × {fit.device.id} ({axis}={fit.count})"
                    error.message = error.message.replace(option(axis, fit.count), words)
            raise

    return named


def fitting_words(budget: MemoryLimit, mesh: Mesh | None) -> str:
    """The devices and the layout on them: `on 2 × h100-sxm (tp=2)`."""
    if mesh is not None and budget.device is not None:  # with `--on h100`, each rank has this memory
        from tfacct.parallel.mesh import ranks_of

        budget = replace(budget, count=max(mesh.ranks, ranks_of(mesh)))
    if budget.count == 1 or mesh is None:
        return budget.where
    from tfacct.parallel.search import label

    return f"{budget.where} ({label(mesh)})"


def fitting_models(budget: MemoryLimit, mesh: Mesh | None, fits: Sequence[bool]) -> str:
    """How many of several models fit."""
    return f"{sum(fits):,} of {len(fits):,} models fit {fitting_words(budget, mesh)} at this context."


def shard_notes(models: Sequence[LoadedModel], mesh: Mesh) -> list[str]:
    """Notes on the shards of these models on one rank."""
    if not models or mesh.tp == 1:
        return []
    outside = "Each rank has" if mesh.ep == 1 else "Outside the experts, each rank has"
    replicated = "" if mesh.fsdp > 1 else "; all other weights are replicated"
    shares = f"{outside} a shard of heads, MLP width and vocabulary{replicated}."
    return [shares, *uneven_notes(models, mesh)]


def one_of_ranks(mesh: Mesh | None, word: str = "of") -> str:
    """` of one of 8 ranks`; empty without a mesh."""
    if mesh is None:
        return ""
    from tfacct.parallel.mesh import ranks_of

    return f" {word} one of {ranks_of(mesh):,} ranks"


def rank_facts(mesh: Mesh, stage: int, whole: Mapping[str, Any]) -> dict[str, Any]:
    """The mesh, the stage in the report, and facts of the whole model next to those of one rank."""
    from tfacct.parallel.mesh import ranks_of

    facts = {"tp": mesh.tp, "mesh": {**values_of(MeshFacts, mesh), "ranks": ranks_of(mesh)}, "whole": dict(whole)}
    return facts if mesh.pp == 1 else {**facts, "pp": mesh.pp, "stage": stage}


def expert_notes(models: Sequence[LoadedModel], mesh: Mesh) -> list[str]:
    """Notes on expert parallelism."""
    if mesh.ep == 1:
        return []
    experts = expert_shares(models[0], mesh.ep) if len(models) == 1 else f"1/{mesh.ep:,} of the experts"
    sharded = f", each sharded over {mesh.expert_shards:,} ranks" if mesh.expert_shards > 1 else ""
    own = own_batch(mesh)
    return [f"Each rank has {experts}{sharded}.{f' One batch{own}.' if own else ''}"]


def expert_shares(model: LoadedModel, ep: int) -> str:
    """`16 of 128 experts`: the experts of one rank."""
    counts = sorted({group.axes["E"] for group in model.ledger.groups if "E" in group.axes})
    return f"{' or '.join(f'{count // ep:,} of {count:,}' for count in counts)} experts"


def whole_experts_note(model: LoadedModel, mesh: Mesh) -> str | None:
    """Note on a layout with more FSDP ranks than experts: FSDP2 shards the first dimension of stacked experts, and pads
    it to a multiple of the ranks."""
    counts = {group.axes["E"] // mesh.ep for group in model.ledger.groups if "E" in group.axes}
    ranks = mesh.expert_shards
    if mesh.fsdp == 1 or not counts or ranks <= min(counts):
        return None
    return f"FSDP shards by whole experts: it pads {min(counts):,} to {ranks:,}. Each rank stores one and gathers all."


def own_batch(mesh: Mesh | None) -> str:
    """` on each rank`, or ` in each group of 2 ranks`, if these have their own batch; empty if all ranks share one."""
    if mesh is None or (mesh.ep <= mesh.tp and mesh.fsdp == 1):
        return ""
    group = mesh.tp * mesh.sequence_shards
    return " on each rank" if group == 1 else f" in each group of {group:,} ranks"


def notes(models: Sequence[LoadedModel], stage: int, mesh: Mesh, report: Literal["flops", "memory"]) -> list[str]:
    """Notes on what one rank computes or stores. `stage`: the one in the report, of one model."""
    stages = stage_notes(models, stage, mesh, "computes" if report == "flops" else "holds")
    return [*shard_notes(models, mesh), *stages, *expert_notes(models, mesh), *axis_notes(mesh, report)]


ROUTING = "Routing is assumed even over the experts."
EP_CACHE = "ep shards experts, which cache nothing."
SP = "--sp changes nothing here: it shards the residual stream between matmuls."
AXIS_NOTES = (
    ("ep", ("flops",), ROUTING),
    ("ep", ("kv",), EP_CACHE),
    ("cp", ("flops",), "Each cp rank has the queries of 1/{:,} of each sequence, and all keys."),
    ("cp", ("memory", "kv"), "Each cp rank caches 1/{:,} of each sequence; one rank also caches the next token."),
    ("sp", ("flops", "params", "memory", "kv"), SP),
    ("fsdp", ("flops", "kv"), "The batch is that of one FSDP rank, which gathers all weights."),
    ("fsdp", ("memory",), "FSDP ranks shard the weights; each has its own batch. Not included: gathered parameters."),
)
"""Axis of a layout, the reports that it needs a note in, and the note."""


def axis_notes(mesh: Mesh, report: str) -> list[str]:
    """Notes of a report on the axes of a layout."""
    sizes = {axis: getattr(mesh, axis) for axis in ("ep", "cp", "fsdp")} | {"sp": 2 if mesh.sp else 1}
    return [text.format(sizes[axis]) for axis, reports, text in AXIS_NOTES if report in reports and sizes[axis] > 1]


def stage_notes(models: Sequence[LoadedModel], stage: int, mesh: Mesh, does: str = "holds") -> list[str]:
    """The note on stages, and the one in the report, of one model."""
    if mesh.pp == 1 or len(models) != 1:
        return []
    return [f"{stage_sizes(models[0].ledger, mesh)} Shown: stage {stage:,}, which {does} the most."]


PEAK_NOTES = {
    "tp": "Peaks include communication buffers only for tp, where they were measured: see `tfacct train`.",
    "cp": "Peaks exclude buffers for keys and values of other cp ranks.",
}


def peak_notes(metrics: str, *axes: str) -> list[str]:
    """Notes on peaks on ranks of these axes."""
    return [note for axis, note in PEAK_NOTES.items() if axis in axes and "peak" in metrics]


def head_notes(models: Sequence[LoadedModel], mesh: Mesh) -> list[str]:
    """Notes on replicated heads of one model."""
    if len(models) != 1 or mesh.tp == 1:
        return []
    from tfacct.parallel.mesh import replicated_heads
    from tfacct.parallel.support import gathers_heads

    sentences = [
        f"{f'Each of the {heads:,} key/value heads' if heads > 1 else 'The one key/value head'} is on"
        f" {mesh.tp // heads:,} ranks, with its weights and cache."
        for heads in replicated_heads(models[0].ledger, mesh)
    ]
    gathered = [HEADS_GATHERED] if gathers_heads(models[0]) else cache_shard_notes(models[0], mesh.tp)
    return [*sentences, *gathered]


def uneven_notes(models: Sequence[LoadedModel], mesh: Mesh) -> list[str]:
    """Notes on replicated heads of one model, and on axes that are not split evenly."""
    if len(models) != 1 or mesh.tp == 1:
        return []
    from tfacct.parallel.mesh import padded_axes

    sentences = head_notes(models, mesh)
    for axis, size in padded_axes(models[0].ledger, mesh):
        share = mesh.shard_size(axis, size)
        sentences.append(
            f"{axis} = {size:,} is not split evenly: the fullest rank has {share:,}, the last ranks have fewer."
        )
    return sentences


def cache_shard_notes(model: LoadedModel, count: int) -> list[str]:
    """How devices shard the cache of a model with a norm over all heads, which transformers' plan does not shard."""
    from tfacct.parallel.support import joint_norm

    if count == 1 or not any(map(joint_norm, model.architecture.attentions)):
        return []
    # The fewest of several ranks: the plan copies no heads, and more may cut quantization blocks.
    tp = divisors([count, *(group.axes["K"] for group in model.ledger.groups if "K" in group.axes)])[:2][-1]
    plan = spelled(f"`tfacct memory {model.name} --tp {tp}`", f"memory(tp={tp})")
    return [
        f"The cache is sharded by heads, as in vLLM. With transformers' plan, each rank has the whole cache ({plan})."
    ]


def fsdp_unit_note(mesh: Mesh, train: bool = True) -> str:
    """When ranks of `fsdp` gather weights and scatter gradients."""
    if mesh.pp == 1:
        return "Parameters are gathered layer by layer, as in fully_shard."
    scattered = ", gradients are scattered after the last one" if train else ""
    once = f"Parameters are gathered once for all micro-batches{scattered}"
    return f"{once}, as in torch's pipeline schedules with fully_shard without resharding."


def sequence_notes(mesh: Mesh, *, masked: bool = True) -> list[str]:
    """How a sequence is sharded. `masked`: the attention is causal."""
    from tfacct.parallel.mesh import CP_CHUNKS

    sentences = []
    if mesh.cp > 1:
        pieces = mesh.sequence_shards * CP_CHUNKS
        how = "pass from rank to rank" if mesh.cp_method == "ring" else "are gathered"
        cut = (
            f"A sequence is cut into {pieces:,} chunks. Each rank has one from the start and one from the end, so that"
            " the causal mask leaves equally many pairs on every rank."
        )
        sentences.append(
            f"{cut if masked else 'Each rank has consecutive tokens, which see all others.'} Keys and values {how}."
        )
    if mesh.ulysses > 1:
        sentences.append("Ulysses ranks shard tokens, and heads inside attention.")
    return sentences


def stage_sizes(ledger: Ledger, mesh: Mesh) -> str:
    """How many layers each stage has."""
    from tfacct.parallel.pipeline import blocks_in, stages

    every = [len(stage.blocks) for chunk in zip(*stages(blocks_in(ledger), mesh), strict=True) for stage in chunk]
    layers = sum(every)
    each, more = divmod(layers, len(every))
    first = "first" if more == 1 else f"first {more:,}"
    sizes = f"{each:,} each" if not more else f"{each + 1:,} in the {first}, {each:,} in the others"
    many = f"{len(every):,} stages" + (f", {mesh.chunks:,} on a rank" if mesh.chunks > 1 else "")
    ends = "The first stage has the embeddings, the last one the output head."
    return f"{layers:,} layers in {many}: {sizes}. {ends}"


def bubble_note(mesh: Mesh, times: int) -> str:
    """The pipeline bubble, by schedule."""
    from tfacct.parallel.pipeline import BUBBLE, bubble

    ratio = bubble(mesh, times)
    value = f" = {ratio}" if ratio is not None else ""
    many = units.number_of(times, "micro-batch")
    sentence = f"{mesh.schedule}, {many}: the bubble is {BUBBLE[mesh.schedule]}{value} × a stage's compute time."
    return sentence if ratio is not None else f"{sentence} F: forward pass; B: input gradients; W: weight gradients."
