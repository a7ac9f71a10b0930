"""Collectives of a parallel layout: what one rank sends in a forward pass or in a training step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from tfacct.base import units
from tfacct.base.errors import UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.storage import DEFAULT_DTYPE
from tfacct.ledger.workload import Request, whole_sequences
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import Column, NoteRow, Report, Table, notes
from tfacct.parallel.collectives import Collective, Kind, Of, Over, When
from tfacct.parallel.mesh import TP_AXES, Mesh, checked, facts, padded_axes, tp_axis
from tfacct.parallel.model_collectives import Ends, RankCollectives, checked_ends, rank_collectives
from tfacct.parallel.pipeline import microbatches, waits_facts
from tfacct.parallel.rules import AfterHead
from tfacct.parallel.support import DTYPES, check_step, encodes
from tfacct.reports import build
from tfacct.reports.ranks import division, of_parts, of_units, uneven, waits

_ORDER = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send")
_OVER = ("tp", "cp", "ulysses", "ep", "pp", "fsdp", "dp")
_WHEN = ("forward", "backward", "update")
_COUNTED: dict[AfterHead, str] = {
    "divided": "; no loss, no optimizer, no gathered logits",
    "gathered": " and the gathered logits; no loss, no optimizer",
    "loss": " and of the loss; no optimizer",
}


# The JSON.


class StageFacts(TypedDict):
    """What a rank of a stage stores and sends."""

    rank_params: int
    sent_bytes: int


class CollectiveLine(TypedDict):
    """Collectives that one line needs. `because`: the axis they follow from."""

    what: str
    calls: int
    bytes: int
    because: str


class Collectives(TypedDict):
    """Collectives of one kind. `bytes` are those of the results on one rank, `sent_bytes` what it sends in a ring."""

    kind: Kind
    over: Over
    when: When
    of: Of
    calls: int
    bytes: int
    sent_bytes: int
    because: str
    lines: list[CollectiveLine]


class CommsReport(build.ModelReport):
    """Collectives of one rank of a parallel layout."""

    workload: build.WorkloadFacts
    train: bool
    mesh: build.MeshFacts
    after_head: AfterHead
    reduce_dtype: str
    stage: int | None
    stages: list[StageFacts] | None
    microbatches: int | None
    bubble: str | None
    bubble_ratio: float | None
    rank_params: int
    total_params: int
    sent_bytes: int
    collectives: list[Collectives]


@record
class Comms:
    """What the notes are about: a model and its collectives on a mesh."""

    model: LoadedModel
    one: RankCollectives
    mesh: Mesh
    train: bool


@answers(CommsReport)
def comms(
    model: LoadedModel,
    request: Request,
    mesh: Mesh,
    *,
    train: bool = False,
    dtype: str | None = None,
    after: AfterHead = "divided",
    reduce_dtype: str | None = None,
) -> Report:
    """Collectives of one new token, of `tokens` of them, or with `train` of a training step; of an encoder, which has
    no single token, of its whole context. `after`: whether logits stay sharded, are gathered, or go into a sharded
    loss. `reduce_dtype`: of gradients that are summed over batches. Raises UsageError, and ConfigError for a model with
    a part that is not supported."""
    mesh = checked(mesh)
    check_step(mesh)
    ends = checked_ends(mesh, train, after, reduce_dtype)
    if not train and mesh.ranks == mesh.dp and mesh.ep == 1:
        raise UsageError(f"{option('dp', mesh.dp)} sends gradients alone", f"{option('train', True)} counts them")
    name = units.dtype_name(dtype or DEFAULT_DTYPE)
    if name not in DTYPES:
        raise UsageError(f"ranks send {listed(DTYPES)}, not {name}")
    if train and (request.decode or request.tokens is not None):
        raise whole_sequences("train")
    if not train and request.tokens is None and model.has_cache:
        request = replace(request, decode=True)
    one = rank_collectives(model, selection.workload(model, request), mesh, train, name, ends)
    return build.report(
        "comms",
        [model],
        table(one.lines),
        [_facts(one, mesh, train, name, ends)],
        title=f"{build.label(model)}: what one of {mesh.ranks:,} ranks sends in {name},"
        f" {build.workload_words([model], request)}",
        convention="collectives as torch runs them; bytes of the results on one rank, sent bytes as in a ring",
        answer=_answer(one, train),
        notes=lambda _: notes(NOTES, Comms(model, one, mesh, train)),
        counted=f"the collectives of products, norms and weights{_COUNTED[ends.after]}",
        requests=[request],
        headline="sent_bytes",
    )


# The answer and the tables.


def _answer(one: RankCollectives, train: bool) -> str:
    over = {axis: sum(line.sent for line in one.lines if line.over == axis) for axis in _OVER}
    parts = [f"{units.binary(sent)} over {axis}" for axis, sent in over.items() if sent]
    calls = sum(line.calls for line in one.lines)
    named = f"{', '.join(parts[:-1])} and {parts[-1]}, " if len(parts) > 1 else ""
    many = f"{calls:,} collective{'' if calls == 1 else 's'}"
    where = "each rank" if len(set(one.sent_by_stage)) == 1 else f"a rank of stage {one.stage:,}"
    what = "A step" if train else "A new token" if one.work.tokens == one.work.batch == 1 else "A forward pass"
    return f"{what} sends {units.binary(one.sent)} from {where}: {named}{many}."


def _alike(lines: Iterable[Collective]) -> list[list[Collective]]:
    """Lines of one kind, over one mesh axis, in one pass and of one sort of tensor; in the order of a table."""
    found: dict[tuple[str, ...], list[Collective]] = {}
    for line in lines:
        apart = line.because if line.of == "keys" else ""
        found.setdefault((line.over, line.when, line.kind, line.of, apart), []).append(line)

    def place(lines: Sequence[Collective]) -> tuple[int, int, int]:
        first = lines[0]
        return _OVER.index(first.over), _WHEN.index(first.when), _ORDER.index(first.kind)

    return sorted(found.values(), key=place)


def _because(lines: Sequence[Collective]) -> str:
    """The reason of collectives of one kind, from the axes of their lines."""
    first = lines[0]
    backward = first.when == "backward"
    match first.over, first.of:
        case _, "heads":
            return "heads for tokens"
        case "pp", _:
            return "layers are split" if first.kind == "send" else "tied embedding on two"
        case _, "keys":
            return "S is sharded" if first.because == "S" else "gradients contract T"
        case (("cp" | "ulysses"), "weights"):
            return "gradients contract T"
        case "dp", _:
            return "gradients contract B" if backward else "optimizer is sharded"
        case "fsdp", _:
            again = "gathered again" if backward else "weights are sharded"
            return "gradients contract B" if first.kind == "reduce-scatter" else again
        case _, "logits":
            return "V is sharded" if first.kind == "all-gather" else "the loss contracts V"
    if first.kind == "all-to-all":
        return "E is sharded"
    order = (*TP_AXES, "G", "E", "T")
    there = {line.because: tp_axis(line.because) or line.because for line in lines}
    axes = sorted((one for one in there if there[one] in order), key=lambda one: (order.index(there[one]), one))
    named = " ".join(axes)
    if first.of == "shared weights":
        return f"weights contract {named}"  # norms', positions'
    return f"{named} {'are' if len(axes) > 1 else 'is'} {'sharded' if first.kind == 'all-gather' else 'contracted'}"


def rows(lines: Iterable[Collective]) -> list[dict[str, Any]]:
    """Collectives of a kind together: a row of the table each, and an entry of the JSON."""
    return [
        {
            "kind": alike[0].kind,
            "over": alike[0].over,
            "when": alike[0].when,
            "calls": sum(line.calls for line in alike),
            "bytes": sum(line.bytes for line in alike),
            "sent_bytes": sum(line.sent for line in alike),
            "because": _because(alike),
            "of": alike[0].of,
            "lines": [
                {"what": line.what or "outside the blocks", "calls": line.calls, "bytes": line.bytes}
                | {"because": line.because}
                for line in alike
            ],
        }
        for alike in _alike(lines)
    ]


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
    """How many parameters a rank stores."""
    one, fsdp = about.one, about.mesh.fsdp > 1
    most = fsdp or len({*one.stored_by_stage}) > 1 or padded_axes(about.model.ledger, about.mesh)
    held, whole = units.people(one.stored), units.people(one.whole)
    padding = ", padding included" if fsdp else ""
    return f"{'The fullest rank' if most else 'Each rank'} stores {held} of {whole} parameters{padding}."


def _stages(about: Comms) -> list[str]:
    """Which stages the model has, whose rank is shown, and how long stages wait."""
    mesh, one = about.mesh, about.one
    if mesh.pp == 1:
        return []
    most = "as much as any" if len({*one.sent_by_stage}) == 1 else "most"
    shown = f"{division(about.model.ledger, mesh)} Shown is a rank of stage {one.stage:,}, which sends {most}."
    return [shown, *([waits(mesh, microbatches(mesh, one.work.axes(), True))] if about.train else [])]


def _replicas(about: Comms) -> str:
    """What replicas of the ranks shard, and how they reduce gradients."""
    mesh = about.mesh
    if mesh.dp == 1:
        return ""
    each = f"{mesh.dp:,} replicas have a batch each"
    if not about.train:
        return f"{each}."
    if mesh.fsdp > 1 and not mesh.zero:
        return f"{each}; they reduce the gradients that fsdp has scattered, as HSDP does."
    if mesh.zero:
        also = " and gradients" if mesh.zero > 1 else ""
        sentence = (
            f"{each} and shard optimizer state{also}, as ZeRO {mesh.zero} does; sums are scattered layer by layer."
        )
    else:
        buckets = "gradients are reduced in buckets of 25 MiB, as DistributedDataParallel does, the first of 1 MiB."
        sentence = f"{each}; {buckets}"
    if mesh.ep == 1:
        return sentence
    if mesh.expert_replicas == 1:
        return f"{sentence} Each expert is on one rank, which has all of its gradient."
    return f"{sentence} Each expert is on {mesh.expert_replicas:,} ranks, which sum its gradient by themselves."


def _routing(about: Comms) -> str:
    if not any(line.over == "ep" for line in about.one.lines):
        return ""
    if about.mesh.imbalance == 1:
        return "Tokens are spread evenly over the ranks of ep."
    times = f"{float(about.mesh.imbalance):g}"
    return f"The fullest rank of ep receives {times} times as many tokens as the mean."


NOTES: tuple[NoteRow, ...] = (
    NoteRow("stored", 2, _stored),
    NoteRow(
        "fsdp",
        2,
        lambda about: about.mesh.fsdp > 1 and of_units(about.mesh, about.train),
        "Each rank of fsdp has a batch of its own. {}",
    ),
    NoteRow("uneven", 2, lambda about: uneven([about.model], about.mesh)),
    NoteRow("stages", 2, _stages),
    NoteRow(
        "sequences",
        2,
        lambda about: of_parts(about.mesh, about.train, masked=not encodes(about.model.architecture)),
    ),
    NoteRow("replicas", 2, _replicas),
    NoteRow("routing", 2, _routing),
    NoteRow(
        "quantized",
        1,
        lambda about: about.mesh.fsdp > 1 and about.model.quantized,
        "The config stores its weights quantized; here they are sent unpacked.",
    ),
    NoteRow(
        "ring",
        3,
        lambda _: True,
        "Bytes are those of the results on one rank. In a ring it sends all shares but one of what is gathered or"
        " scattered, and twice as much of an all-reduce; in an all-to-all it sends each other rank a share.",
    ),
    NoteRow(
        "logits",
        3,
        lambda about: about.mesh.tp > 1,
        "Logits stay sharded along the vocabulary, unless they are gathered or a loss is computed of their shards.",
    ),
)


# Facts.


def _facts(one: RankCollectives, mesh: Mesh, train: bool, dtype: str, ends: Ends) -> dict[str, Any]:
    staged: dict[str, Any] = {}
    if mesh.pp > 1:
        by_stage = zip(one.stored_by_stage, one.sent_by_stage, strict=True)
        staged = {
            "stage": one.stage,
            "stages": [{"rank_params": stored, "sent_bytes": sent} for stored, sent in by_stage],
            **waits_facts(mesh, microbatches(mesh, one.work.axes(), train), train),
        }
    return {
        "workload": selection.workload_facts(one.work, dtype=dtype),
        "train": train,
        "mesh": facts(mesh),
        "after_head": ends.after,
        "reduce_dtype": ends.reduced or dtype,
        **staged,
        "rank_params": one.stored,
        "total_params": one.whole,
        "sent_bytes": one.sent,
        "collectives": rows(one.lines),
    }
