"""Collectives of a parallel layout: what one rank sends in a forward pass or in a training step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypedDict, get_args

from tfacct.base import units
from tfacct.base.errors import UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.storage import DEFAULT_DTYPE
from tfacct.ledger.workload import Request, sequences_only
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, NoteRow, Table, notes
from tfacct.parallel.collectives import Collective, Kind, Of, Over, When, sent_over
from tfacct.parallel.mesh import Mesh, checked
from tfacct.parallel.model_collectives import Ends, RankCollectives, checked_ends, rank_collectives
from tfacct.parallel.pipeline import microbatches, waits_facts
from tfacct.parallel.rules import AfterHead
from tfacct.parallel.support import DTYPES, check_together, encodes
from tfacct.reports import build
from tfacct.reports.ranks import ROUTING, bubble_note, fsdp_unit_note, sequence_notes, stage_sizes, uneven_notes
from tfacct.training.recipe import Recipe

COUNTED: dict[AfterHead, str] = {
    "sharded": "; no loss, no optimizer, no gathered logits",
    "gathered": " and the gathered logits; no loss, no optimizer",
    "loss": " and of the loss; no optimizer",
}
"""What is counted besides matmuls, norms and weights, by what happens to the logits."""


of_line: Keys[[Collective]] = Keys()
of_row: Keys[[Sequence[Collective]]] = Keys()
of_rank: Keys[[Comms]] = Keys()


class StageFacts(TypedDict):
    """Parameters and sent bytes of a rank, for one stage."""

    rank_params: int
    sent_bytes: int


class CollectiveLine(Object):
    """Collectives of one line. `because`: the sharded axis."""

    what: str = of_line(lambda line: line.what or "outside the layers")
    calls: int = of_line(lambda line: line.calls)
    bytes: int = of_line(lambda line: line.bytes)
    because: str = of_line(lambda line: line.because)


class Collectives(Object):
    """Collectives of one kind. `bytes`: results on one rank; `sent_bytes`: bytes it sends in a ring."""

    kind: Kind = of_row(lambda row: row[0].kind)
    over: Over = of_row(lambda row: row[0].over)
    when: When = of_row(lambda row: row[0].when)
    of: Of = of_row(lambda row: row[0].of)
    calls: int = of_row(lambda row: sum(line.calls for line in row))
    bytes: int = of_row(lambda row: sum(line.bytes for line in row))
    sent_bytes: int = of_row(lambda row: sum(line.sent for line in row))
    because: str = of_row(lambda row: _because(row))
    lines: list[CollectiveLine] = of_row(lambda row: [values_of(CollectiveLine, line) for line in row])


class CommsReport(build.ModelReport):
    """Collectives of one rank of a parallel layout."""

    workload: build.WorkloadFacts = of_rank(
        lambda one: selection.workload_facts(replace(one.sent.work, batch=one.batch), dtype=one.dtype)
    )
    train: bool = of_rank(lambda one: one.train)
    mesh: build.MeshFacts = of_rank(lambda one: values_of(build.MeshFacts, one.mesh))
    after_head: AfterHead = of_rank(lambda one: one.ends.after)
    reduce_dtype: str = of_rank(lambda one: one.ends.reduced or one.dtype)
    stage: int | None
    stages: list[StageFacts] | None
    microbatches: int | None
    bubble: str | None
    bubble_ratio: float | None
    rank_params: int = of_rank(lambda one: one.sent.stored)
    total_params: int = of_rank(lambda one: one.sent.whole)
    sent_bytes: int = of_rank(lambda one: one.sent.sent)
    collectives: list[Collectives] = of_rank(lambda one: rows(one.sent.lines))


@record
class Comms:
    """Collectives of a model on a mesh, in a pass or a step, with `batch` sequences on all ranks. `dtype`: that
    of communication."""

    model: LoadedModel
    sent: RankCollectives
    mesh: Mesh
    train: bool
    dtype: str = DEFAULT_DTYPE
    ends: Ends = Ends()
    batch: int = 1


def comms(
    model: LoadedModel,
    request: Request,
    mesh: Mesh,
    *,
    fewest: bool = False,
    train: bool = False,
    dtype: str | None = None,
    after: AfterHead = "sharded",
    reduce_dtype: str | None = None,
    recompute: str = "none",
) -> CommsReport:
    """Collectives of one new token, of `request.tokens`, or of a training step; an encoder's are of its whole context.
    The batch is that of all ranks; `fewest`: the fewest sequences that the layout divides. `after`: whether logits stay
    sharded, are gathered, or go into a sharded loss. `reduce_dtype`: the dtype in which gradients are reduced. Raises
    TfacctError."""
    mesh = checked(mesh)
    check_together(mesh)
    ends = checked_ends(mesh, train, after, reduce_dtype)
    if not train and mesh.ranks == mesh.dp and mesh.ep == 1:
        raise UsageError(f"{option('dp', mesh.dp)} sends only gradients", f"{option('train', True)} counts them")
    name = units.dtype_name(dtype or DEFAULT_DTYPE)
    if name not in DTYPES:
        raise UsageError(f"communication is in {listed(DTYPES)}, not {name}")
    if train and request.new is not None:
        raise sequences_only("train")
    if not train and request.tokens is None and model.has_cache:
        request = replace(request, decode=True)
    replicas, batch = mesh.batch_shards, ""
    if fewest:
        request = replace(request, batch=replicas * max(1, mesh.microbatches))
        batch = build.fewest_words(request, "for this layout")
    each = rounded_up(request.batch, replicas)
    if train and request.batch % replicas:
        problem = f"{replicas:,} data-parallel ranks do not divide a batch of {request.batch:,}"
        raise UsageError(problem, f"give a multiple: {option('batch', each * replicas)}")
    recipe = Recipe(recompute=recompute, mesh=mesh)
    if recompute != "none" and not train:
        raise UsageError(f"{option('recompute', recompute)} applies to a training step", f"add {option('train', True)}")
    if recipe.has_uncounted_sends:
        problem = f"the communication of {option('recompute', recompute)} is not counted"
        raise UsageError(problem, option("recompute", "full"))
    work = replace(selection.workload(model, request), batch=each)
    sent = rank_collectives(model, work, mesh, train, name, ends, recipe.recomputed_sends)
    about = Comms(model, sent, mesh, train, name, ends, request.batch)
    return build.report(
        CommsReport,
        [model],
        table(sent.lines),
        [_facts(about)],
        title=f"{build.label(model)}: bytes sent by one of {mesh.ranks:,} ranks in {name},"
        f" {build.workload_words([model], request, batch)}",
        answer=_answer(about),
        notes=lambda _: notes(NOTES, about),
        convention=f"the collectives of matmuls, norms and weights{COUNTED[ends.after]}",
        requests=[request],
        headline="sent_bytes",
    )


# The answer and the table.


def _answer(about: Comms) -> str:
    sent = about.sent
    parts = [f"{units.binary(size)} {over}" for over, size in sent_over(sent.lines).items()]
    named = f": {', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else ""
    calls = sum(line.calls for line in sent.lines)
    who = "each rank" if len(set(sent.sent_by_stage)) == 1 else f"a rank of stage {sent.stage:,}"
    token = sent.work.tokens == sent.work.batch == 1
    what = "In a step" if about.train else "For a new token" if token else "In a forward pass"
    return f"{what}, {who} sends {units.binary(sent.sent)} in {units.number_of(calls, 'collective')}{named}."


def _alike(lines: Iterable[Collective]) -> list[list[Collective]]:
    """Lines that share a row of the table, in its order."""
    found: dict[tuple[str, ...], list[Collective]] = {}
    for line in lines:
        apart = line.because if line.of == "keys" else ""
        found.setdefault((line.over, line.when, line.kind, line.of, apart), []).append(line)
    orders = get_args(Over), get_args(When), get_args(Kind)
    return [found[key] for key in sorted(found, key=lambda key: [*map(tuple.index, orders, key)])]


SHARDED: dict[str, str] = {"S": "keys", "T": "tokens", "E": "experts", "V": "logits"}
SUMMED: dict[str, str] = {"B": "batches", "T": "tokens", "V": "logits"}
"""What is sharded, or summed over, by axis; all others are heads."""


def _because(lines: Sequence[Collective]) -> str:
    """Why lines of a row are needed, from the axes that they follow from."""
    first = lines[0]
    match first.over, first.of:
        case _, "heads":
            return "tokens for heads"
        case "pp", _:
            return "layers are split" if first.kind == "send" else "tied embedding"
        case "fsdp", _ if first.kind == "all-gather":
            return "gathered again" if first.when == "backward" else "weights are sharded"
        case "dp", _ if first.when == "update":
            return "optimizer is sharded"
        case _, "keys" if first.because == "T":
            return "sums over queries"
        case (("cp" | "ulysses"), "weights"):
            return "sums over tokens"
    if first.of in ("stream", "experts") and first.kind in ("all-reduce", "reduce-scatter"):
        return f"sums of {'gradients' if first.when == 'backward' else 'outputs'}"
    gathered = first.kind in ("all-gather", "all-to-all", "send")
    named = sorted({(SHARDED if gathered else SUMMED).get(line.because, "heads") for line in lines})
    return f"{' and '.join(named)} are sharded" if gathered else f"sums over {' and '.join(named)}"


def rows(lines: Iterable[Collective]) -> list[dict[str, Any]]:
    """Rows of the table, which are `Collectives` of the JSON."""
    return [values_of(Collectives, alike) for alike in _alike(lines)]


COLUMNS = (
    Column("kind", "collective"),
    Column("over", "over"),
    Column("when", "when"),
    Column("calls", "calls", "count"),
    Column("bytes", "bytes", "bytes"),
    Column("sent_bytes", "sent", "bytes"),
    Column("because", "because", drop=1),
)


def table(lines: Iterable[Collective]) -> Table:
    """Collectives of one rank, and their sum."""
    found = rows(lines)
    total: dict[str, Any] = {size: sum(row[size] for row in found) for size in ("calls", "bytes", "sent_bytes")}
    return COLUMNS, (tuple(found),), ({"kind": "total", **total},)


# Notes.


def _stored(about: Comms) -> str:
    stored, whole = (units.people(count) for count in (about.sent.stored, about.sent.whole))
    padding = ", padding included" if about.mesh.fsdp > 1 else ""
    return f"The fullest rank stores {stored} of {whole} parameters{padding}."


def _stages(about: Comms) -> list[str]:
    mesh, sent = about.mesh, about.sent
    if mesh.pp == 1:
        return []
    shown = f"{stage_sizes(about.model.ledger, mesh)} Shown: a rank of stage {sent.stage:,}; no stage sends more."
    return [shown, *([bubble_note(mesh, microbatches(mesh, sent.work.axes(), True))] if about.train else [])]


def _replicas(about: Comms) -> str:
    """What data-parallel replicas shard, and how they reduce gradients."""
    mesh = about.mesh
    if mesh.dp == 1 or not about.train:
        return ""
    each = f"{mesh.dp:,} replicas each have their own batch"
    if mesh.fsdp > 1:
        return f"{each} and all-reduce the gradients that FSDP has scattered (HSDP)."
    if not mesh.zero:
        return f"{each}; gradients are reduced in buckets of 25 MiB, the first of 1 MiB (DDP)."
    also = " and gradients" if mesh.zero > 1 else ""
    return f"{each} and shard optimizer state{also} (ZeRO {mesh.zero}); gradients are scattered layer by layer."


def _routing(about: Comms) -> str:
    if not any(line.over == "ep" for line in about.sent.lines):
        return ""
    if about.mesh.imbalance == 1:
        return ROUTING
    return f"The fullest rank of ep receives {float(about.mesh.imbalance):g} times as many tokens as the mean."


def _summed_late(about: Comms) -> bool:
    """True under torch's plan, which reduces each matmul's gradient of its input."""
    mesh = about.mesh
    return about.train and mesh.tp > 1 and not mesh.sp and mesh.plan == "torch"


NOTES: tuple[NoteRow, ...] = (
    NoteRow(
        "tp_plan",
        1,
        lambda about: _summed_late(about) and option("tp_plan", "megatron"),
        "{} needs fewer all-reduces: gradients of one tensor are summed first.",
    ),
    NoteRow("stored", 2, _stored),
    NoteRow(
        "fsdp",
        2,
        lambda about: about.mesh.fsdp > 1 and fsdp_unit_note(about.mesh, about.train),
        "Each FSDP rank has its own batch, here one micro-batch. {}",
    ),
    NoteRow("uneven", 2, lambda about: uneven_notes([about.model], about.mesh)),
    NoteRow("stages", 2, _stages),
    NoteRow("sequences", 2, lambda about: sequence_notes(about.mesh, masked=not encodes(about.model.architecture))),
    NoteRow("replicas", 2, _replicas),
    NoteRow("routing", 2, _routing),
    NoteRow(
        "quantized",
        1,
        lambda about: about.mesh.fsdp > 1 and about.model.quantized,
        "The published weights are quantized; here they are sent unpacked.",
    ),
    NoteRow(
        "ring",
        3,
        lambda _: True,
        "bytes: the size of the result on one rank. sent: as in a ring. An all-gather or reduce-scatter sends all"
        " shards but one, an all-reduce twice as much, an all-to-all the shares of the other ranks.",
    ),
)


def _facts(about: Comms) -> dict[str, Any]:
    """Keys of `CommsReport`."""
    sent, mesh, train = about.sent, about.mesh, about.train
    if mesh.pp == 1:
        return values_of(CommsReport, about)
    by_stage = zip(sent.stored_by_stage, sent.sent_by_stage, strict=True)
    stages = [{"rank_params": stored, "sent_bytes": size} for stored, size in by_stage]
    waits = waits_facts(mesh, microbatches(mesh, sent.work.axes(), train), train)
    return values_of(CommsReport, about, stage=sent.stage, stages=stages, **waits)
