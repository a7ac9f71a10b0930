"""Time of a step on devices: serving kernel by kernel, training by what takes the time, and a calibrated machine.

`time` estimates a step of serving, `time_train` a training step under FSDP or under tensor and pipeline parallelism.
On a machine that was swept both estimate the reference model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, Literal, TypedDict

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.storage import DEFAULT_DTYPE
from tfacct.ledger.workload import Request, Workload, new_tokens
from tfacct.loading import selection
from tfacct.loading.devices import Device
from tfacct.loading.links import Link
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import PLAIN, Amount, Cell, Column, NoteRow, Report, Row, Table, notes
from tfacct.reports import build, model_notes
from tfacct.timing import fsdp_time, megatron_time
from tfacct.timing.calibrated import DOUBT, ReferencePass, reference_pass
from tfacct.timing.fsdp_time import TRAINING
from tfacct.timing.megatron_time import MEGATRON
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.step_estimate import (
    StepEstimate,
    StepOptions,
    fitting_options,
    measured_alike,
    step_estimate,
    unmeasured_step,
)
from tfacct.timing.timing import CONSTANTS, WIDE, Alike, Step, by_kernel, units_of
from tfacct.timing.validated import MEASURED, NEWER_STACKS, REPORTED, STORED, VALIDATED, Class, Validation

CONVENTION = (
    "an estimate: seconds by a fitted law over FLOPs, bytes and launches; FLOPs and bytes are counted, per device"
)


class OnDevices(TypedDict):
    """Devices that share a model."""

    device: str
    count: int
    tp: int
    ep: int
    link: build.LinkUsed | None
    memory_bytes: int
    memory_from: str
    dtype: str
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    kv_dtype: str


Validated = TypedDict(
    "Validated",
    {
        "class": Literal["dense", "experts", "training", "divided"],
        "metric": Literal["request", "token", "step"],
        "points": int,
        "points_fitted": int,
        "cells": int,
        "points_on_device": int,
        "points_in_dtype": int,
        "median_error": float,
        "coverage": float,
    },
)

Validated.__doc__ = "Errors of such estimates on measured runs that the constants had not seen; shares are of 1."


class Calibrated(TypedDict):
    """The sweep of a machine: whole passes measured over predicted, the median error of these, and their ends."""

    machine: str
    dtype: str
    threads: int
    torch: str
    clock: Literal["process", "wall", "events"]
    read: str
    checks: dict[str, float]
    median_error: float
    low: float
    high: float


def error_note(one: Placement, sequences: int = 1) -> str:
    """The measured error of an estimate of serving, or the reason why none is known."""
    error = one.error("request", sequences)
    if error is None:
        return _unknown(one.unmeasured(sequences))
    reported = REPORTED[error.kind, "request"]
    missing = [] if error.on.get(one.device.id) else ["on this device"]
    missing += [] if one.runs_alike else [f"with {one.dtype} weights"]
    none = f"; none {' or '.join(missing)}" if missing else ""
    return (
        f"Estimate: median error {units.percent(reported.median)} on {reported.runs:,} runs never fitted; 80% lie"
        f" within × {error.low:.2f} … {error.high:.2f}{none}."
    )


def evidence_note(one: Placement, sequences: int = 1) -> str:
    """The runs that the error was measured on; empty where none is known."""
    error = one.error("request", sequences)
    if error is None:
        return ""
    models = "models with experts" if error.kind == "experts" else "dense models"
    return (
        f"The error is that of the latency of requests to {models}; {_fitted(error.on.get(one.device.id, 0), 'run')},"
        f" and {units.percent(error.coverage)} of the measured runs lie in the interval of the others."
    )


def step_error_note(model: LoadedModel, device: Device, megatron: bool, link: Link | None) -> str:
    """The measured error of the estimate of a training step, or the reason why none is known. `link`: of all
    devices."""
    if reason := unmeasured_step(device, link):
        return _unknown(reason)
    kind: Class = "divided" if megatron else "training"
    reported, here = REPORTED[kind, "step"], VALIDATED[kind, "step"].on.get(device.id, 0)
    if megatron:
        where = f"{here:,} of them" if here else "none of them"
        unknown = "" if here else ", so its error here is not known"
        return (
            f"Estimate. GPT models under Megatron-LM (2021 and 2022): median error {units.percent(reported.median)} on"
            f" {reported.runs:,} steps, {where} on this device{unknown}."
        )
    if measured_alike(model, megatron):
        return (
            f"Estimate. MPT under FSDP (llm-foundry, 2023): median error {units.percent(reported.median)} on"
            f" {reported.runs:,} steps never fitted; {_fitted(here, 'step')}."
        )
    stacks = " and ".join(f"{units.percent(one.median, 0)} on {name}" for name, one in NEWER_STACKS.items())
    return f"Estimate by constants of MPT steps of 2023. Steps of 2024 to 2026: median error {stacks}."


def _unknown(reason: str) -> str:
    return f"Estimate. {reason}, so its error is not known."


def _fitted(here: int, what: str) -> str:
    return f"{f'{here:,} {what}s' if here else f'no {what}'} on this device {'were' if here else 'was'} fitted"


def formats_note(one: Placement) -> str:
    """The format of weights, and the units that multiply them."""
    used, wide = units_of(one.device, one.dtype), one.host.activations.name
    note = f"FLOPs and bytes are per device. Weights {one.dtype}, activations {wide}, cache {one.cache}."
    if one.dtype not in WIDE:
        note += f" Narrow weights are multiplied in {used}."
    elif used != one.dtype:
        note += f" The device has no {one.dtype} units: they are multiplied in {used}."
    return note


def range_note(one: Placement) -> str:
    """Says that the upper end is counted, where the bytes of the weights are a range."""
    weights = one.host.weights
    return "" if weights.least is None else f"The upper end of the weights' range is counted: {weights.differs}."


def files_notes(one: Placement) -> list[str]:
    """The difference between the files next to the config and the count, where the config names the format; and a
    cache that it stores in another format."""
    given = selection.format_facts(one.model, one.asked)["dtype_from"] == selection.GIVEN
    return [
        *(() if given else model_notes.files_notes([one.model])),
        *model_notes.cache_notes([one.model], one.cache),
    ]


def link_notes(*links: Link | None) -> list[str]:
    """The links that devices use."""
    return list(dict.fromkeys(link.words for link in links if link is not None))


def placement_facts(one: Placement) -> dict[str, Any]:
    """The devices in the JSON."""
    split = one.host.split
    return {
        "device": one.device.id,
        "count": one.count,
        "tp": split.tp,
        "ep": split.ep,
        "link": None if one.link is None else one.link.facts(),
        **one.device.memory_facts(),
        "dtype": one.dtype,
        **selection.format_facts(one.model, one.asked),
        "kv_dtype": one.cache,
    }


def validation_facts(one: Placement, sequences: int = 1) -> dict[str, Any] | None:
    """Errors on measured runs in the JSON; null where none was like this."""
    error = one.error("request", sequences)
    return None if error is None else error_facts(error, one.device.id, one.runs_alike)


def error_facts(error: Validation, device: str, alike: int) -> dict[str, Any]:
    """Errors in the JSON. `device`: its id; `alike`: fitted runs whose weights have the same format."""
    reported = REPORTED[error.kind, error.metric]
    return {
        "class": error.kind,
        "metric": error.metric,
        "points": reported.runs,
        "points_fitted": error.runs,
        "cells": error.cells,
        "points_on_device": error.on.get(device, 0),
        "points_in_dtype": alike,
        "median_error": reported.median,
        "coverage": reported.coverage,
    }


def assumptions(*laws: Any) -> dict[str, float]:
    """Every constant of the laws by name; of serving without any."""
    return {field.name: getattr(law, field.name) for law in laws or (CONSTANTS,) for field in fields(law)}


# A step


BOUND = "never below"
IDLE = 0.25
"""Share of a step that stages wait, from which on a note says how they wait less."""
NAMES = {
    "products": "products of blocks",
    "head": "head",
    "attention": "attention",
    "pointwise": "pointwise",
    "logits": "logits and loss",
    "launches": "launches",
    "gathers": "gathers, scatters",
    "sums": "sums over tp",
    "waiting": "waiting of stages",
    "gradients": "sums of gradients",
    "optimizer": "optimizer",
    "rest": "rest",
}
LEAST = (
    "At least: in bf16, weights, AdamW's state, and the larger of gradients and the activations that matmuls read.",
    "At least: in bf16, weights, gradients, AdamW's state and the activations that matmuls read.",
)
"""What the least memory includes: of one micro-batch, and of several, whose gradients stay in memory."""
TRAIN_CONVENTION = "an estimate: seconds by a fitted law over FLOPs, bytes and launches, under FSDP"
MEGATRON_CONVENTION = "an estimate: seconds by a fitted law over FLOPs, bytes and launches, as Megatron divides a step"
STATED_CONVENTION = "seconds of all FLOPs, without recomputation, at a stated share of the bf16 peak"
SWEPT_CONVENTION = "an estimate: seconds read off a sweep of this machine, for the reference model, line by line"


TIMES_AND_FLOPS = (Column("times", "times", "count", drop=1), Column("flops", "FLOPs", "flops", drop=1))
ESTIMATED = (Column("seconds", "≈ time", "seconds"), Column("share", "share", "share", drop=3))


class TimedKernel(TypedDict):
    """Kernels of one name in all blocks: FLOPs and bytes of one device, and seconds, an estimate."""

    kernel: str
    times: int
    flops: int
    bytes: int | None
    limit: Literal["compute", "memory", "launch", "link"] | None
    seconds: float | None


class TimeReport(build.ModelReport):
    """Estimated time of a step on devices, kernel by kernel."""

    workload: build.WorkloadFacts
    on: OnDevices
    estimate: bool
    value_seconds: float | None
    interval_80_seconds: list[float] | None
    bound_seconds: float
    tokens_per_second: float | None
    engine_seconds: float | None
    kernels: list[TimedKernel]
    validation: Validated | None
    assumptions: dict[str, float]
    calibration: Calibrated | None


class TimeTrainReport(build.ModelReport):
    """Estimated time of a training step, next to that of a constant utilization."""

    workload: build.WorkloadFacts
    train: bool
    device: str
    devices: int
    accumulate: int
    recompute: Literal["full", "attention", "none"]
    tp: int
    sp: bool
    pp: int
    pp_chunks: int
    link: build.LinkUsed | None
    link_tp: build.LinkUsed | None
    estimate: bool
    fits: bool | None
    least_bytes: int
    needed_bytes: int | None
    usable_bytes: int
    value_seconds: float | None
    interval_80_seconds: list[float] | None
    constant_utilization_seconds: float | None
    parts_seconds: dict[str, float] | None
    tokens_per_second_each: float | None
    mfu: float | None
    mfu_palm: float | None
    days: float | None
    validation: Validated | None
    assumptions: dict[str, float]
    calibration: Calibrated | None


@answers(TimeReport)
def time(
    model: LoadedModel,
    request: Request,
    on: Deployment,
    *,
    prefill: bool = False,
    bound_only: bool = False,
) -> Report:
    """Seconds of a decode step, of `tokens` new tokens, or with `prefill` of whole prompts. Raises TfacctError, also
    where weights and cache do not fit into the usable memory."""
    memory = on.memory()
    if prefill and (request.decode or request.tokens is not None):
        other = "decode" if request.decode else "tokens"
        raise UsageError(f"{option('prefill')} does not go with {option(other)}", "leave one of the two out")
    if not prefill and request.tokens is None:
        request = replace(request, decode=True)
    if swept := _swept(memory):
        for name, given in (("lower_bound", bound_only), ("ep", on.ep != 1), ("kv_dtype", on.kv_dtype is not None)):
            if given:
                raise UsageError(f"{option(name, True)} is of engines: {swept} was swept with the reference model")
        return _time_swept(model, request, memory, train=False, dtype=on.dtype)
    request = replace(request, logits="last")
    one = on.place(model, memory)
    work = selection.runnable(model, request)
    one.check_room(work.context, work.batch, memory)
    step = one.host.step(work)
    rows = by_kernel(step, one.count, bound_only)
    what = "one decode step" if work.tokens == 1 else "a prefill" if prefill else f"a step of {new_tokens(work.tokens)}"
    stored = selection.format_name(model, on.dtype)
    return build.report(
        "time",
        [model],
        _bound_table(rows, step) if bound_only else _table(rows, step, one, work),
        [_facts(one, work, step, rows, bound_only)],
        title=f"{build.label(model)}: {what} on {one.where}, {stored}, context {work.context:,}, batch {work.batch:,}",
        convention=CONVENTION,
        answer=_answer(one, work, step, bound_only),
        notes=lambda _: notes(NOTES, (one, work, bound_only)),
        requests=[request],
    )


def _table(rows: list[Alike], step: Step, one: Placement, work: Workload) -> Table:
    whole = step.seconds
    shown = [
        _row(
            row.kernel,
            row.times,
            row.flops,
            bytes=row.bytes or None,
            limit=row.limit,
            seconds=Fraction(row.seconds),
            share=Fraction(row.seconds / whole),
        )
        for row in rows
    ]
    share = Fraction(step.engine / whole)
    shown.append({"kernel": "engine", "times": 1, "limit": "host", "seconds": Fraction(step.engine), "share": share})
    totals: list[Row] = [{"kernel": "step", "seconds": f"≈ {units.seconds(whole)}"}]
    if (ends := one.interval(whole, work.batch, step.bound)) is not None:
        totals.append({"kernel": "80% interval", "seconds": units.time_range(ends), PLAIN: 1})
    totals.append({"kernel": BOUND, "seconds": units.seconds(step.bound), PLAIN: 1})
    columns = (
        Column("kernel", "kernel"),
        *TIMES_AND_FLOPS,
        Column("bytes", "bytes", "bytes", drop=1),
        Column("limit", "limit", drop=1),
        *ESTIMATED,
    )
    return columns, (tuple(shown),), tuple(totals)


def _row(kernel: str, times: int, flops: int, **cells: Cell) -> Row:
    return {"kernel": kernel, "times": times, "flops": flops or None, **cells}


def _of(work: Workload) -> str:
    """What a step gives: `a token of each of 32 sequences`."""
    new = "a token" if work.tokens == 1 else new_tokens(work.tokens)
    return new if work.batch == 1 else f"{new} of each of {work.batch:,} sequences"


def _bound_table(rows: list[Alike], step: Step) -> Table:
    """FLOPs and bytes alone: no law, no constants. Kernels without any are left out."""
    totals: list[Row] = [
        {"kernel": "FLOPs at the peak", "seconds": units.seconds(step.compute), PLAIN: 1},
        {"kernel": "weights and cache at the bandwidth", "seconds": units.seconds(step.memory), PLAIN: 1},
        {"kernel": BOUND, "seconds": units.seconds(step.bound)},
    ]
    shown = [_row(row.kernel, row.times, row.flops, bytes=row.bytes or None) for row in rows if row.flops or row.bytes]
    columns = (
        Column("kernel", "kernel"),
        Column("times", "times", "count", drop=1),
        Column("flops", "FLOPs", "flops"),
        Column("bytes", "bytes", "bytes"),
        Column("seconds", "", "seconds"),
    )
    return columns, (tuple(shown),), tuple(totals)


def _answer(one: Placement, work: Workload, step: Step, bound_only: bool) -> str:
    per = work.batch * work.tokens
    if bound_only:
        least = units.seconds(step.bound)
        return f"At the peaks {_of(work)} takes {least}, never less: at most {units.three(per / step.bound)} tokens/s."
    ends = one.interval(step.seconds, work.batch, step.bound)
    interval = f", {units.time_range(ends)} in 4 of 5 cases" if ends else ""
    return f"≈ {units.seconds(step.seconds)} for {_of(work)}{interval}: ≈ {units.three(per / step.seconds)} tokens/s."


def _bound_note(about: tuple[Placement, Workload, bool]) -> str:
    one, _, bound_only = about
    if not bound_only:
        return ""
    experts = " Of experts it reads those of one token: routing decides which others are read."
    return (
        "The bound is all FLOPs at the peaks or weights and cache at the bandwidth, whichever takes longer."
        f"{experts if one.model.ledger.experts else ''}"
    )


NOTES = (
    NoteRow("error", 1, lambda about: not about[2] and error_note(about[0], about[1].batch)),
    NoteRow("bound", 1, _bound_note),
    NoteRow("files", 2, lambda about: files_notes(about[0])),
    NoteRow("range", 2, lambda about: range_note(about[0])),
    NoteRow("links", 2, lambda about: link_notes(about[0].link)),
    NoteRow("formats", 2, lambda about: formats_note(about[0])),
    NoteRow("evidence", 3, lambda about: not about[2] and evidence_note(about[0], about[1].batch)),
)
"""Of a step of serving: the placement, the workload, and whether only the bound was asked for."""


def _facts(one: Placement, work: Workload, step: Step, rows: list[Alike], bound_only: bool) -> dict[str, Any]:
    per = work.batch * work.tokens
    ends = None if bound_only else one.interval(step.seconds, work.batch, step.bound)
    lines = [{**row._asdict(), "seconds": None if bound_only else row.seconds} for row in rows]
    return {
        "workload": selection.workload_facts(work, masked=True, dtype=one.dtype),
        "on": placement_facts(one),
        "estimate": not bound_only,
        "value_seconds": None if bound_only else step.seconds,
        "interval_80_seconds": None if ends is None else list(ends),
        "bound_seconds": step.bound,
        "tokens_per_second": None if bound_only else per / step.seconds,
        "engine_seconds": None if bound_only else step.engine,
        "kernels": lines,
        "validation": None if bound_only else validation_facts(one, work.batch),
        "assumptions": assumptions(),
        "calibration": None,
    }


@answers(TimeTrainReport)
def time_train(model: LoadedModel, request: Request, on: Deployment, how: StepOptions) -> Report:
    """Seconds of a training step on devices that share it. Raises TfacctError."""
    memory = on.memory(training=True)
    if swept := _swept(memory):
        if how != StepOptions():
            raise UsageError(f"{swept} was swept for a plain step: one micro-batch, no recomputation, no days")
        return _time_swept(model, request, memory, train=True, dtype=on.dtype)
    dtype = units.dtype_name(on.dtype or DEFAULT_DTYPE)
    one = step_estimate(model, selection.runnable(model, request), memory, dtype, how)
    return build.report(
        "time",
        [model],
        _train_table(one),
        [_train_facts(one)],
        title=f"{build.label(model)}: one training step on {one.device.several(one.trained.devices)}, {dtype},"
        f" {_train_words(one)}",
        convention=STATED_CONVENTION
        if how.mfu is not None
        else MEGATRON_CONVENTION
        if one.megatron
        else TRAIN_CONVENTION,
        answer=_train_answer(one),
        notes=lambda _: notes(TRAIN_NOTES, one),
        requests=[request],
    )


def _train_words(one: StepEstimate) -> str:
    """The step in words."""
    parts = one.trained.accumulate
    accumulated = f", {parts:,} micro-batches" if parts > 1 else ", 1 micro-batch" if one.megatron else ""
    again = "" if one.how.recompute == "none" else f", recompute {one.how.recompute}"
    each = "on each device" if not one.megatron else f"on every {one.how.mesh.ranks:,} devices"
    return f"context {one.work.context:,}, batch {one.work.batch:,} {each}{accumulated}{again}"


def _train_facts(one: StepEstimate) -> dict[str, Any]:
    """The step in the JSON."""
    fits = one.memory.fits is not False
    ends, measured = one.interval if fits else None, None
    if ends is not None and measured_alike(one.model, one.megatron):
        measured = error_facts(one.validation, one.device.id, STORED[one.validation.kind][one.dtype])
    return {
        "workload": selection.workload_facts(one.work, dtype=one.dtype),
        "train": True,
        "device": one.device.id,
        "devices": one.trained.devices,
        "accumulate": one.trained.accumulate,
        "recompute": one.how.recompute,
        "tp": one.how.mesh.tp,
        "sp": one.how.mesh.sp,
        "pp": one.how.mesh.pp,
        "pp_chunks": one.how.mesh.chunks,
        "link": None if one.link is None else one.link.facts(),
        "link_tp": None if one.link_tp is None else one.link_tp.facts(),
        "estimate": True,
        "fits": one.memory.fits,
        "least_bytes": one.memory.least,
        "needed_bytes": one.memory.counted,
        "usable_bytes": one.memory.usable,
        "value_seconds": one.parts.seconds if fits else None,
        "interval_80_seconds": None if ends is None else list(ends),
        "constant_utilization_seconds": one.usual if fits and one.how.mfu is None else None,
        "parts_seconds": one.parts._asdict() if fits else None,
        "tokens_per_second_each": one.rate if fits else None,
        "mfu": one.mfu("full") if fits else None,
        "mfu_palm": one.mfu("palm") if fits else None,
        "days": one.days if fits else None,
        "validation": measured,
        "assumptions": assumptions(TRAINING, *([MEGATRON] if one.megatron else []))
        if one.how.mfu is None
        else {"mfu": one.how.mfu},
        "calibration": None,
    }


def _train_table(one: StepEstimate) -> Table:
    """Seconds by what they go to, or the memory that is missing."""
    if one.memory.fits is False:
        return _missing_memory(one)
    if one.how.mfu is not None:
        return _stated_table(one, one.how.mfu)
    whole = one.parts.seconds
    rows: list[Row] = [
        {"what": NAMES[name], "seconds": Fraction(seconds), "share": Fraction(seconds / whole)}
        for name, seconds in one.parts._asdict().items()
        if seconds
    ]
    totals: list[Row] = [{"what": "step", "seconds": f"≈ {units.seconds(whole)}"}]
    if one.interval is not None:
        totals.append({"what": "80% interval", "seconds": units.time_range(one.interval), PLAIN: 1})
    share = megatron_time.UTILIZATION if one.megatron else fsdp_time.UTILIZATION
    usual = f"at {units.percent(share)} of the peak"
    totals.append({"what": usual, "seconds": f"≈ {units.seconds(one.usual)}", PLAIN: 1})
    return (Column("what", "what"), *ESTIMATED), (tuple(rows),), tuple(totals)


def _stated_table(one: StepEstimate, mfu: float) -> Table:
    """The FLOPs of a step on each device, at a stated share of its peak."""
    speed = Fraction(one.device.peak["bf16"]) * Fraction(mfu)
    flops = Fraction(one.parts.seconds) * speed
    tokens = Fraction(one.trained.tokens, one.how.mesh.ranks)
    rows: list[Row] = [
        {"what": "FLOPs per token", "value": Amount(flops / tokens, "flops")},
        {"what": "tokens of a step", "value": Amount(tokens, "count")},
        {"what": f"FLOP/s at {units.percent(mfu)} of the bf16 peak", "value": Amount(speed, "flops")},
    ]
    totals: list[Row] = [{"what": "step", "value": f"≈ {units.seconds(one.parts.seconds)}"}]
    return (Column("what", "on each device"), Column("value", "", "amount")), (tuple(rows),), tuple(totals)


def _missing_memory(one: StepEstimate) -> Table:
    room = one.memory
    rows: list[Row] = [{"what": "needed at least", "bytes": room.least}]
    if room.counted is not None:
        rows.append({"what": "needed as transformers runs it", "bytes": room.counted})
    rows.append({"what": f"usable of {one.device.name}", "bytes": room.usable})
    return (Column("what", "on each device"), Column("bytes", "bytes", "bytes")), (tuple(rows),), ()


def _train_answer(one: StepEstimate) -> str:
    """The step, its rate, its utilization; whether it fits comes first."""
    if one.memory.fits is False:
        return _does_not_fit(one)
    mfu = units.percent(one.mfu("full") or 0)
    rate = units.three(one.rate)
    days = (
        ""
        if one.days is None
        else f", ≈ {units.three(one.days)} days for {units.people(one.how.tokens_total or 0)} tokens"
    )
    seconds = f"≈ {units.seconds(one.parts.seconds)}: ≈ {rate} tokens/s on each device, {mfu} of its peak{days}."
    room = one.memory
    if room.fits is None and room.counted is not None:
        counted = f"{units.binary(room.counted)} of {units.binary(room.usable)}"
        return f"Does not fit as transformers runs it, which needs {counted}. With kernels that save less: {seconds}"
    return seconds


def _does_not_fit(one: StepEstimate) -> str:
    """The answer about a step that cannot run, with the options of one that can."""
    room = one.memory
    needs = f"at least {units.binary(room.least)} of {units.binary(room.usable)}"
    changed = fitting_options(one.model, one.work, one.trained.devices, one.device, one.how, room.usable)
    advice = "" if not changed else f"; try {' '.join(option(name, value) for name, value in changed.items())}"
    return f"Does not fit: needs {needs} on each device{advice}."


def _room_note(one: StepEstimate) -> str:
    """Whether a step that may fit does."""
    counted, usable = one.memory.counted, units.binary(one.memory.usable)
    if counted is None:
        return f"Whether the step fits is not known: {one.memory.reason}."
    if counted <= one.memory.usable:
        return f"Fits: needs {units.binary(counted)} of {usable} as transformers runs it, all in bf16 with AdamW."
    least = units.binary(one.memory.least)
    return f"The least that kernels could need is {least}: {LEAST[one.how.accumulate > 1].removeprefix('At least: ')}"


def _layout(one: StepEstimate) -> str:
    """The parallel layout in words."""
    if not one.megatron:
        return "Devices share by FSDP only."
    mesh, copies = one.how.mesh, one.trained.devices // one.how.mesh.ranks
    made = []
    if mesh.tp > 1:
        made.append(f"{mesh.tp:,} devices share widths{' and tokens' if mesh.sp else ''}")
    if mesh.pp > 1:
        made.append(f"{mesh.pp:,} stages share layers")
    if copies > 1:
        made.append(f"{copies:,} copies take a batch each")
    return f"{', '.join(made)}; attention is unfused."


def _baseline(one: StepEstimate) -> str:
    """The error of the plainest of predictions."""
    steps = "the same steps" if one.device.vendor == MEASURED else f"steps measured on devices of {MEASURED}"
    erred = (
        f"A constant {units.percent(megatron_time.UTILIZATION)} of the peak, recomputation counted, erred 8.7%"
        if one.megatron
        else f"A constant utilization of {units.percent(fsdp_time.UTILIZATION)} erred 13.1%"
    )
    return f"{erred} on {steps}: a strong baseline."


def _mfu(one: StepEstimate) -> str:
    palm = one.mfu("palm")
    both = "" if palm is None else f"; {units.percent(palm)} by PaLM's formula"
    return f"Utilization (MFU) counts all pairs, and no recomputation{both}."


def _assumed(one: StepEstimate) -> str:
    if one.how.mfu is None:
        return ""
    again = " It counts no recomputation." if one.how.recompute != "none" else ""
    return f"{units.percent(one.how.mfu)} MFU is your assumption, not an estimate.{again}"


def _idle(one: StepEstimate) -> dict[str, str] | None:
    """Stages that wait for a large share of the step."""
    waiting = one.parts._asdict().get("waiting", 0.0) / one.parts.seconds
    return {"share": units.percent(waiting), "more": option("gradient_accumulation")} if waiting >= IDLE else None


def _if_timed(when: Callable[[StepEstimate], Any], assumed: bool = False) -> Callable[[StepEstimate], Any]:
    """Only of a step that fits and has an estimate; `assumed`: also at a utilization that the user states."""
    return lambda one: one.memory.fits is not False and (assumed or one.how.mfu is None) and when(one)


TRAIN_NOTES = (
    NoteRow("least", 1, lambda one: one.memory.fits is False and LEAST[one.how.accumulate > 1]),
    NoteRow("room", 1, _if_timed(_room_note, assumed=True)),
    NoteRow("assumed", 1, _if_timed(_assumed, assumed=True)),
    NoteRow("error", 1, _if_timed(lambda one: step_error_note(one.model, one.device, one.megatron, one.link))),
    NoteRow("waiting", 1, _if_timed(_idle), "Stages wait for {share} of the step; more micro-batches ({more}) help."),
    NoteRow("baseline", 2, _if_timed(_baseline)),
    NoteRow("links", 2, _if_timed(lambda one: link_notes(one.link_tp, one.link))),
    NoteRow("mfu", 3, _if_timed(_mfu)),
    NoteRow("layout", 3, _if_timed(_layout)),
)


def _swept(memory: MemoryLimit) -> str:
    """The id of a device that was swept; empty for others."""
    assert memory.device is not None
    return memory.device.id if memory.device.calibration is not None else ""


def _time_swept(model: LoadedModel, request: Request, memory: MemoryLimit, *, train: bool, dtype: str | None) -> Report:
    """Seconds of a pass of the reference model on a swept machine. Raises TfacctError."""
    device = memory.device
    assert device is not None and device.calibration is not None
    on = device.calibration
    if memory.count != 1:
        raise UsageError(f"{device.id} was swept as one device, not as {memory.count:,}", option("on", device.id))
    if dtype is not None and units.dtype_name(dtype) != on.dtype:
        raise UsageError(f"{device.id} was swept in {on.dtype}, not in {dtype}", option("dtype", on.dtype))
    work = selection.runnable(model, request)
    one = reference_pass(model, work, train, device)
    if one.bytes > memory.usable:
        raise UsageError(
            f"{model.name}: {units.binary(one.bytes)} of weights and cache do not fit into the usable {memory.words}"
        )
    what = _pass_words(one)
    return build.report(
        "time",
        [model],
        _swept_table(one),
        [_swept_facts(one)],
        title=f"{build.label(model)}: {what} on {device.name}, {on.dtype}, context {work.context:,},"
        f" batch {work.batch:,}",
        convention=SWEPT_CONVENTION,
        answer=f"≈ {units.seconds(one.seconds)} for {what}: ≈ {units.three(one.rate)} tokens/s.",
        notes=lambda _: notes(SWEPT_NOTES, one),
        requests=[request],
    )


def _pass_words(one: ReferencePass) -> str:
    """The pass in words."""
    if one.train:
        return "a forward and a backward pass"
    return "one decode step" if one.work.tokens == 1 < one.work.context else "a forward pass"


def _swept_table(one: ReferencePass) -> Table:
    """Seconds by what they go to."""
    whole = one.seconds
    rows = [
        _row(part.name, part.times, part.flops, seconds=Fraction(part.seconds), share=Fraction(part.seconds / whole))
        for part in one.parts
    ]
    totals: list[Row] = [
        {"kernel": "pass", "seconds": f"≈ {units.seconds(whole)}"},
        {"kernel": "by its checks", "seconds": units.time_range(one.interval), PLAIN: 1},
        {"kernel": "plain roofline", "seconds": f"≈ {units.seconds(one.roofline)}", PLAIN: 1},
    ]
    return (Column("kernel", "lines"), *TIMES_AND_FLOPS, *ESTIMATED), (tuple(rows),), tuple(totals)


def _run_words(one: ReferencePass) -> str:
    step = " --train" if one.train else " --decode" if one.work.tokens == 1 < one.work.context else ""
    return spelled(f"`tfacct mfu --run {one.model.name}{step}` runs it.", "measure() runs it.")


SWEPT_NOTES = (
    NoteRow("doubtful", 1, lambda one: one.on.checks.doubtful, DOUBT),
    NoteRow(
        "error",
        1,
        lambda one: {"count": len(one.on.checks.ratios), "ends": one.on.checks.ends, "error": one.on.checks.error},
        "Estimate for the reference model, which runs unfused; an engine takes another time. {count:,} whole passes of"
        " small models took × {ends[0]:.2f} … {ends[1]:.2f} of such an estimate when the machine was swept: median"
        " error {error:.1%}.",
    ),
    NoteRow(
        "swept",
        2,
        lambda one: {"on": one.on, "runs": _run_words(one)},
        "Swept on {on.read}: {on.machine}, {on.threads_words}, torch {on.torch}. {runs}",
    ),
)


def _swept_facts(one: ReferencePass) -> dict[str, Any]:
    """The pass in the JSON."""
    on, device = one.on, one.device
    common = {
        "workload": selection.workload_facts(one.work, dtype=on.dtype),
        "estimate": True,
        "value_seconds": one.seconds,
        "interval_80_seconds": None,
        "validation": None,
        "assumptions": {},
        "calibration": on.facts(),
    }
    if one.train:
        return {
            **common,
            "train": True,
            "device": device.id,
            "devices": 1,
            "accumulate": 1,
            "recompute": "none",
            **{"tp": 1, "sp": False, "pp": 1, "pp_chunks": 1, "link": None, "link_tp": None},
            "fits": None,
            "least_bytes": one.bytes,
            "needed_bytes": None,
            "usable_bytes": device.memory,
            "constant_utilization_seconds": None,
            "parts_seconds": {part.name: part.seconds for part in one.parts},
            "tokens_per_second_each": one.rate,
            "mfu": one.flops / one.seconds / device.peak[on.dtype],
            "mfu_palm": None,
            "days": None,
        }
    place = {"device": device.id, "count": 1, "tp": 1, "ep": 1, "link": None, **device.memory_facts()}
    stored = {"dtype": on.dtype, **selection.format_facts(one.model, on.dtype), "kv_dtype": on.dtype}
    return {
        **common,
        "on": {**place, **stored},
        "bound_seconds": one.roofline,
        "tokens_per_second": one.rate,
        "engine_seconds": 0.0,
        "kernels": [Alike(part.name, part.times, part.flops, None, None, part.seconds)._asdict() for part in one.parts],
    }
