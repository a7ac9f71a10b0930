"""What the ranks of a mesh send one another: every collective of a forward pass or of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError, listed
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, whole_sequences
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import TP_AXES, Mesh, checked, facts, padded_axes, tp_axis
from tfacct.parallel.model_collectives import stage_collectives
from tfacct.parallel.pipeline import microbatches, stage_ledgers, waits_facts
from tfacct.parallel.rules import AfterHead
from tfacct.parallel.shard_shapes import stored_elements
from tfacct.parallel.support import DTYPES, check_mesh, check_rows, check_step, encodes, supported_on
from tfacct.parallel.verified import verified
from tfacct.reports import compose, counting
from tfacct.reports.ranks import division, of_parts, of_units, uneven, waits

_ORDER = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send")
_OVER = ("tp", "cp", "ulysses", "ep", "pp", "fsdp", "dp")
_WHEN = ("forward", "backward", "update")
_ABOUT = (
    "Bytes are those of the results on one rank. What a rank sends is that of a ring: of a gather and a scatter all"
    " shares but one, of an all-reduce twice as much. In an all-to-all each rank is sent its share.",
    "Logits stay divided along the vocabulary, unless they are gathered or a loss is computed of their parts.",
)
_COUNTED: dict[AfterHead, str] = {
    "divided": "; no loss, no optimizer, no gathered logits",
    "gathered": " and the gathered logits; no loss, no optimizer",
    "loss": " and of the loss; no optimizer",
}


def comms(
    subjects: Sequence[LoadedModel],
    request: Request,
    mesh: Mesh,
    *,
    train: bool = False,
    dtype: str | None = None,
    after: str = "divided",
    reduce_dtype: str | None = None,
) -> Report:
    """Collectives of one new token, of `tokens` of them, or with `train` of a training step; of an encoder, which has
    no single token, of its whole context. `after`: whether logits
    stay divided, are gathered, or go into a divided loss. `reduce_dtype`: of gradients that are summed over batches.
    Raises UsageError, and ConfigError for a model with a part that has no rule."""
    mesh = checked(mesh)
    check_step(mesh)
    ends = ends_of(mesh, train, after, reduce_dtype)
    if not train and mesh.ranks == mesh.dp and mesh.ep == 1:
        raise UsageError(f"{option('dp', mesh.dp)} sends gradients alone", f"{option('train', True)} counts them")
    name = units.dtype_name(dtype or counting.DEFAULT_DTYPE)
    if name not in DTYPES:
        raise UsageError(f"ranks send {listed(DTYPES)}, not {name}")
    if train and (request.decode or request.tokens is not None):
        raise whole_sequences("train")
    encoders: list[LeftOut] = []
    if not train and request.tokens is None and any(subject.keeps for subject in subjects):
        request = replace(request, decode=True)
        subjects, encoders = counting.steppable(subjects, request)
    subjects, every, left_out = supported_on(subjects, lambda subject: _of(subject, request, mesh, train, name, ends))
    alone = len(subjects) == 1
    who = f"{compose.name_of(subjects[0])}: what" if alone else "What"
    rows = _table(every[0]) if alone else _several(subjects, every)
    return compose.report(
        "comms",
        subjects,
        rows,
        [_facts(one, mesh, train, name, ends) for one in every],
        title=f"{who} one of {mesh.ranks:,} ranks sends in {name}, {compose.workload_words(subjects, request)}",
        convention="collectives as torch runs them; bytes of the results on one rank, sent bytes as in a ring",
        answer=_answer(subjects, every, train),
        notes=lambda at: _notes(subjects[at], every[at], mesh, train),
        counted=f"the collectives of products, norms and weights{_COUNTED[ends.after]}",
        details=lambda _: _ABOUT,
        requests=[request],
        left_out=[*encoders, *left_out],
        headline="sent_bytes",
    )


class Ends(NamedTuple):
    """What becomes of logits, and the dtype in which gradients of weights are summed over batches; None: the same."""

    after: AfterHead = "divided"
    reduced: str | None = None


def ends_of(mesh: Mesh, train: bool, after: str, reduce_dtype: str | None) -> Ends:
    """Raises UsageError for what this mesh or this pass does not do."""
    if after not in _COUNTED:
        raise UsageError(f"{option('after_head')} is {listed(tuple(_COUNTED))}, not {after!r}")
    if after != "divided" and mesh.tp == 1:
        raise UsageError(
            f"{option('after_head', after)} applies to logits that {option('tp')} divides", f"give {option('tp', 8)}"
        )
    if after == "loss" and not train:
        raise UsageError(
            f"{option('after_head', after)} applies to a training step", f"{option('train', True)} counts it"
        )
    if reduce_dtype is None:
        return Ends(after)
    name = units.dtype_name(reduce_dtype)
    if name not in DTYPES:
        raise UsageError(f"ranks sum gradients in {listed(DTYPES)}, not {name}")
    if not train or mesh.fsdp * mesh.dp == 1:
        said = f"{option('reduce_dtype', name)} applies to gradients that are summed over batches"
        raise UsageError(said, f"give {option('train', True)}, and {option('fsdp')} or {option('dp')}")
    return Ends(after, name)


class Counted(NamedTuple):
    """A model's collectives, and those of a kind together."""

    work: Any
    lines: list[Collective]
    stored: int
    whole: int
    by_stage: list[int]
    stored_by_stage: list[int]

    @property
    def sent(self) -> int:
        """Bytes that one rank sends in a ring."""
        return sum(line.sent for line in self.lines)

    @property
    def together(self) -> list[list[Collective]]:
        """Lines of one kind, over one axis, in one pass and of one sort of tensor."""
        found: dict[tuple[str, ...], list[Collective]] = {}
        for when in _WHEN:
            for line in self.lines:
                if line.when == when:
                    apart = line.because if line.of == "keys" else ""
                    found.setdefault((line.over, line.when, line.kind, line.of, apart), []).append(line)
        return sorted(found.values(), key=_place)


def _place(lines: Sequence[Collective]) -> tuple[int, int, int]:
    """Where collectives of a kind stand in a table: by mesh axis, pass and kind."""
    first = lines[0]
    return _OVER.index(first.over), _WHEN.index(first.when), _ORDER.index(first.kind)


def _of(subject: LoadedModel, request: Request, mesh: Mesh, train: bool, dtype: str, ends: Ends) -> Counted:
    check_mesh(subject, mesh, train=train)
    if train:
        _check_order(subject, mesh)
    work = counting.workload(subject, request)
    try:
        reduced = None if ends.reduced is None else units.dtype_bits(ends.reduced)
        bits = units.dtype_bits(dtype)
        every = stage_collectives(subject, mesh, work.axes(), bits, train=train, after=ends.after, reduced=reduced)
    except UsageError as error:
        error.message = f"{subject.name}: {error.message}"
        raise
    sizes = [sum(line.sent for line in lines) for lines in every]
    lines = every[sizes.index(max(sizes))]
    if mesh.imbalance != 1 and not any(line.kind == "all-to-all" and line.over == "ep" for line in lines):
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        said = f"{given} applies to tokens that go to experts, and none do here"
        raise UsageError(
            said, f"ranks of one batch have all its tokens: {option('ep')} above {option('tp')} sends them"
        )
    if not verified(subject.family, "torch_plan"):
        check_rows(subject, mesh)
    stored = [stored_elements(own, mesh) for own in stage_ledgers(subject.ledger, mesh)]
    return Counted(work, lines, max(stored), subject.parameters, sizes, stored)


def _check_order(subject: LoadedModel, mesh: Mesh) -> None:
    """Raises ConfigError for buckets of a class whose gradients are ready in an order that was not compared."""
    if mesh.replicas > 1 and mesh.fsdp == 1 and not mesh.zero and encodes(subject.architecture):
        raise ConfigError(
            f"{subject.name}: it has an encoder, and which tensors share a bucket of {option('dp')} was not compared",
            f"{option('fsdp')} and {option('zero')} reduce without such buckets; all of them together have the bytes of"
            " the gradients",
        )


def _answer(subjects: Sequence[LoadedModel], every: Sequence[Counted], train: bool) -> str:
    (one, *others) = every
    pass_ = "A step" if train else "A new token" if one.work.tokens == one.work.batch == 1 else "A forward pass"
    if others:
        least, most = (pick(zip(every, subjects, strict=True), key=lambda each: each[0].sent) for pick in (min, max))
        ends = [f"{units.binary(each.sent)} ({subject.name})" for each, subject in (least, most)]
        who = "The rank that sends most" if any(len(set(each.by_stage)) > 1 for each in every) else "Each rank"
        return f"{who} sends from {ends[0]} to {ends[1]}."
    over = {axis: sum(line.sent for line in one.lines if line.over == axis) for axis in _OVER}
    parts = [f"{units.binary(sent)} over {axis}" for axis, sent in over.items() if sent]
    calls = sum(line.calls for line in one.lines)
    named = f"{', '.join(parts[:-1])} and {parts[-1]}, " if len(parts) > 1 else ""
    many = f"{calls:,} collective{'' if calls == 1 else 's'}"
    same = len(set(one.by_stage)) == 1
    where = "each rank" if same else f"a rank of stage {one.by_stage.index(one.sent) + 1:,}"
    return f"{pass_} sends {units.binary(one.sent)} from {where}: {named}{many}."


def _because(lines: Sequence[Collective]) -> str:
    """The reason of collectives of one kind, from the letters of their lines."""
    first = lines[0]
    if first.of == "heads":
        return "heads for tokens"
    if first.over == "pp":
        return "blocks are divided" if first.kind == "send" else "the table is on two"
    if first.of == "keys":
        return "S is divided" if first.because == "S" else "gradients contract T"
    if first.of == "weights" and first.over in ("cp", "ulysses"):
        return "gradients contract T"
    if first.over == "dp":
        return "gradients contract B" if first.when == "backward" else "moments are divided"
    if first.over == "fsdp":
        if first.kind == "reduce-scatter":
            return "gradients contract B"
        return "blocks again" if first.when == "backward" else "weights are divided"
    if first.of == "logits":
        return "V is divided" if first.kind == "all-gather" else "the loss contracts V"
    if first.kind == "all-to-all":
        return "E is divided"
    order = (*TP_AXES, "G", "E", "T")
    there = {line.because: tp_axis(line.because) or line.because for line in lines}
    letters = sorted((one for one in there if there[one] in order), key=lambda one: (order.index(there[one]), one))
    named = " ".join(letters)
    if first.of == "shared weights":
        return f"weights contract {named}"  # norms', positions'
    return f"{named} {'are' if len(letters) > 1 else 'is'} {'divided' if first.kind == 'all-gather' else 'contracted'}"


def _row(lines: Sequence[Collective]) -> dict[str, Any]:
    first = lines[0]
    return {
        "kind": first.kind,
        "over": first.over,
        "when": first.when,
        "calls": sum(line.calls for line in lines),
        "bytes": sum(line.bytes for line in lines),
        "sent_bytes": sum(line.sent for line in lines),
        "because": _because(lines),
    }


def _table(one: Counted) -> Table:
    rows: list[Row] = [_row(lines) for lines in one.together]
    total: Row = {"kind": "total", **{key: sum(row[key] for row in rows) for key in ("calls", "bytes", "sent_bytes")}}  # type: ignore[misc]
    columns = (
        Column("kind", "collective"),
        Column("over", "over"),
        Column("when", "when"),
        Column("calls", "calls", "count"),
        Column("bytes", "bytes", "bytes"),
        Column("sent_bytes", "sent", "bytes"),
        Column("because", "because", drop=1),
    )
    return columns, (tuple(rows),), (total,)


def _several(subjects: Sequence[LoadedModel], every: Sequence[Counted]) -> Table:
    rows: list[Row] = [
        {
            "model": compose.name_of(subject),
            "calls": sum(line.calls for line in one.lines),
            "bytes": sum(line.bytes for line in one.lines),
            "sent_bytes": one.sent,
        }
        for subject, one in zip(subjects, every, strict=True)
    ]
    numbers = (Column("calls", "calls", "count"), Column("bytes", "bytes", "bytes"))
    return (Column("model", "model"), *numbers, Column("sent_bytes", "sent", "bytes")), (tuple(rows),), ()


def _notes(subjects: Sequence[LoadedModel], every: Sequence[Counted], mesh: Mesh, train: bool) -> list[str]:
    notes = ["Bytes are those of the results on one rank, and what is sent is that of a ring."]
    if len(every) == 1:
        held, whole = units.people(every[0].stored), units.people(every[0].whole)
        padding = ", padding included" if mesh.fsdp > 1 else ""
        uneven_ = len({*every[0].stored_by_stage}) > 1
        fullest = "The fullest rank" if padding or uneven_ or padded_axes(subjects[0].ledger, mesh) else "Each rank"
        notes.append(f"{fullest} stores {held} of {whole} parameters{padding}.")
    if mesh.fsdp > 1:
        notes.append(f"Each rank of fsdp has a batch of its own. {of_units(mesh, train)}")
    notes += uneven(subjects, mesh)
    if mesh.pp > 1 and len(every) == 1:
        notes += _of_stages(subjects[0], every[0], mesh, train)
    notes += of_parts(mesh, train, masked=not any(encodes(subject.architecture) for subject in subjects))
    if mesh.dp > 1:
        notes.append(of_copies(mesh) if train else f"{mesh.dp:,} copies have a batch each.")
    if any(line.over == "ep" for one in every for line in one.lines):
        notes.append(
            "Tokens are spread evenly over the ranks of ep."
            if mesh.imbalance == 1
            else f"The fullest rank of ep receives {float(mesh.imbalance):g} times as many tokens as the mean."
        )
    if mesh.fsdp > 1 and any(subject.quantized for subject in subjects):
        notes.append("The config stores its weights quantized; here they are sent unpacked.")
    return notes


def _of_stages(subject: LoadedModel, one: Counted, mesh: Mesh, train: bool) -> list[str]:
    """Which stages there are, and whose rank is shown."""
    sizes, times = one.by_stage, microbatches(mesh, one.work.axes(), train)
    shown = sizes.index(max(sizes)) + 1
    most = "as much as any" if len(set(sizes)) == 1 else "most"
    which = f"Shown is a rank of stage {shown:,}, which sends {most}."
    return [f"{division(subject.ledger, mesh)} {which}", *([waits(mesh, times)] if train else [])]


def of_copies(mesh: Mesh) -> str:
    """What copies of the ranks divide, and how they reduce gradients."""
    said = f"{mesh.dp:,} copies have a batch each"
    if mesh.zero:
        also = " and gradients" if mesh.zero > 1 else ""
        how = f"{said} and divide moments{also}, as ZeRO {mesh.zero} does; sums are scattered block by block."
        return f"{how}{_alone(mesh)}"
    if mesh.fsdp > 1:
        return f"{said}; they reduce the gradients that fsdp has scattered, as HSDP does."
    buckets = "gradients are reduced in buckets of 25 MiB, as DistributedDataParallel does, the first of 1 MiB."
    return f"{said}; {buckets}{_alone(mesh)}"


def _alone(mesh: Mesh) -> str:
    """How many of the copies sum the gradients of an expert."""
    if mesh.ep == 1:
        return ""
    if mesh.expert_replicas == 1:
        return " Each expert is on one rank, which has all of its gradient."
    return f" Each expert is on {mesh.expert_replicas:,} ranks, which sum its gradient by themselves."


def _facts(one: Counted, mesh: Mesh, train: bool, dtype: str, ends: Ends) -> dict[str, Any]:
    return {
        "workload": counting.workload_facts(one.work, dtype=dtype),
        "train": train,
        "mesh": facts(mesh),
        "after_head": ends.after,
        "reduce_dtype": ends.reduced or dtype,
        **(_stages(one, mesh, train) if mesh.pp > 1 else {}),
        "rank_params": one.stored,
        "total_params": one.whole,
        "sent_bytes": one.sent,
        "collectives": [{**_row(lines), "of": lines[0].of, "lines": _lines(lines)} for lines in one.together],
    }


def _stages(one: Counted, mesh: Mesh, train: bool) -> dict[str, Any]:
    """What is said of a pipeline: its ranks, the one that is shown, and how long stages wait."""
    times = microbatches(mesh, one.work.axes(), train)
    return {
        "stage": one.by_stage.index(one.sent) + 1,
        "stages": [
            {"rank_params": stored, "sent_bytes": sent}
            for stored, sent in zip(one.stored_by_stage, one.by_stage, strict=True)
        ],
        **waits_facts(mesh, times, train),
    }


def _lines(lines: Sequence[Collective]) -> list[dict[str, Any]]:
    return [
        {"what": line.what or "outside the blocks", "calls": line.calls, "bytes": line.bytes, "because": line.because}
        for line in lines
    ]
