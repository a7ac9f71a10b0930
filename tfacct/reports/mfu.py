"""Model FLOPs utilization (MFU): of a run whose speed is given, or of one on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from tfacct.accounts.metrics import Point
from tfacct.architecture.parts import MlaMode
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading import devices, selection
from tfacct.loading.memory_limit import MemoryLimit, device_limit
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, NoteRow, Row, Table, Tick, notes, unwatched
from tfacct.reports import build, model_notes
from tfacct.reports.build import ModelReport, WorkloadFacts
from tfacct.timing.fsdp_time import Trained, least_bytes
from tfacct.timing.utilization import (
    CONVENTIONS,
    Convention,
    above_peak,
    check_positive,
    flops_per_token,
    peak_of,
    utilization,
)

if TYPE_CHECKING:
    from tfacct.verify.measured import Plan


class MfuLine(TypedDict):
    """FLOPs of a run in one convention, and their share of the peak."""

    convention: Convention
    flops_per_token: float
    flops_per_second: float
    mfu: float


class MfuReport(ModelReport):
    """Model FLOPs utilization of a run, in every convention; `mfu` counts full attention."""

    _line = MfuLine

    workload: WorkloadFacts
    train: bool
    device: str
    devices: int
    peak_flops_per_second: int
    tokens_per_second: float
    seconds_per_step: float | None
    mfu: float


NOTES = (
    NoteRow(
        "memory",
        1,
        lambda run: run["memory"],
        "Full training under FSDP needs at least {least} per device, more than the usable {usable}; adapters or offload"
        " need less.",
    ),
    NoteRow(
        "context",
        1,
        lambda run: run["longest"],
        "Counted at context {context:,}, the longest of the model; {ctx} sets that of the run.",
    ),
    NoteRow(
        "source", 2, lambda run: run["source"], "Tokens: the decoder's; each sequence also has {:,} source tokens."
    ),
    NoteRow(
        "convention",
        2,
        bool,
        "The answer counts full attention, as `tfacct flops` does. Recomputation is not counted.",
    ),
    NoteRow("not_counted", 2, lambda run: run["missing"], "Not counted: {}."),
)


def mfu(
    model: LoadedModel,
    request: Request,
    on: str,
    *,
    tokens_per_second: float | None = None,
    step_time: float | None = None,
    dtype: str | None = None,
    train: bool = True,
) -> MfuReport:
    """MFU of a training run, or of forward passes, in every convention.

    Speed of all devices together: `tokens_per_second`, or the seconds of one step of `request.batch` whole sequences.
    `dtype`: of the matmuls. Raises TfacctError.
    """
    count, device = devices.several(option("on"), on)
    units_of, peak = peak_of(device, dtype)
    if request.decode or request.tokens is not None:
        raise whole_sequences("tokens_per_second")
    work = selection.runnable(model, request)
    speed = _speed(tokens_per_second, step_time, work.batch * work.context)
    point = Point(model.ledger, work, train=train)
    lines, missing = _lines(point, speed / count, peak)
    full = lines[0]
    each = " on each device" if count > 1 else ""
    rate = f"{_tera(full['flops_per_second'])} of {_tera(peak)} TFLOP/s{each}"
    sentence = f"{units.percent(full['mfu'])} MFU (full attention): {rate}."
    about = {
        "memory": train and _short(model, work, device_limit(count, device, training=True)),
        "longest": request.ctx is None and {"context": work.context, "ctx": option("ctx")},
        "source": work.source,
        "missing": missing,
    }
    step = "training" if train else "forward passes"
    return build.report(
        MfuReport,
        [model],
        _table(lines),
        [
            {
                "workload": selection.workload_facts(work, dtype=units_of),
                "train": train,
                "device": device.id,
                "devices": count,
                "peak_flops_per_second": peak,
                "tokens_per_second": speed,
                "seconds_per_step": step_time,
                "mfu": full["mfu"],
                "lines": lines,
            }
        ],
        title=f"{build.label(model)}: {step} on {device.several(count)}, {units_of}, context {work.context:,}",
        convention="2 FLOPs per multiply-add; no recomputation; divided by the dense peak of all devices",
        answer=" ".join(filter(None, (sentence, above_peak(full["mfu"])))),
        notes=lambda _: notes(NOTES, about),
        requests=[request],
    )


def _speed(tokens_per_second: float | None, step_time: float | None, tokens: int) -> float:
    """Tokens per second of all devices. Raises UsageError unless exactly one of the two is given, above 0."""
    if (tokens_per_second is None) == (step_time is None):
        given = (
            "give one of the two"
            if step_time is not None
            else f"for example {option('tokens_per_second', 60000)}, summed over all devices"
        )
        raise UsageError(f"give {option('tokens_per_second')} or {option('step_time')}", given)
    if tokens_per_second is not None:
        check_positive("tokens_per_second", tokens_per_second)
        return float(tokens_per_second)
    check_positive("step_time", step_time)
    return tokens / (step_time or 1)


def _short(model: LoadedModel, work: Workload, limit: MemoryLimit) -> dict[str, str]:
    """Memory of a step with one sequence on each device, in words; empty if it may fit."""
    least = least_bytes(
        model.ledger, replace(work, batch=1).axes(), Trained(work.context, 1, limit.count, recompute=True)
    )
    words = {"least": units.binary(least), "usable": units.binary(limit.usable)}
    return words if least > limit.usable else {}


def _lines(point: Point, each: float, peak: float) -> tuple[list[MfuLine], list[str]]:
    """A line for each convention at `each` tokens per second of a device; and why one is missing."""
    lines: list[MfuLine] = []
    missing = []
    for convention in CONVENTIONS:
        try:
            per_token = float(flops_per_token(point, convention))
        except TfacctError as error:
            missing.append(error.message)
            continue
        lines.append(
            {
                "convention": convention,
                "flops_per_token": per_token,
                "flops_per_second": per_token * each,
                "mfu": utilization(per_token, each, peak),
            }
        )
    return lines, missing


def _table(lines: Sequence[MfuLine]) -> Table:
    rows: list[Row] = [
        {
            "convention": CONVENTIONS[line["convention"]],
            "flops_per_token": Fraction(line["flops_per_token"]),
            "teraflops_per_second": Fraction(line["flops_per_second"] / 1e12),
            "mfu": Fraction(line["mfu"]),
        }
        for line in lines
    ]
    columns = (
        Column("convention", "counted"),
        Column("flops_per_token", "FLOPs per token", "flops"),
        Column("teraflops_per_second", "TFLOP/s per device", "rate"),
        Column("mfu", "MFU", "share"),
    )
    return columns, (tuple(rows),), ()


def _tera(flops: float) -> str:
    return units.three(flops / 1e12)


# A run on this machine.


CONVENTION = "2 FLOPs per multiply-add; matmuls only; MFU relative to a matmul timed on the same device in the same run"


class MeasureReport(build.ModelReport):
    """Seconds, FLOP/s and bytes of real runs."""

    _reserved: ClassVar[dict[str, Any]] = {"interrupted": bool}

    workload: build.WorkloadFacts
    device: str
    device_name: str
    torch: str
    threads: int | None
    attention: str
    latent_attention: MlaMode | None
    train: bool
    runs: int
    seconds_min: float
    seconds_median: float
    seconds_max: float
    tokens_per_second: float
    total_flops: int
    masked_flops: int
    flops_per_second: float
    masked_flops_per_second: float
    peak_flops_per_second: float | None
    mfu: float | None
    masked_mfu: float | None
    weights_bytes: int
    measured_weights_bytes: int
    kv_cache_bytes: int
    measured_kv_cache_bytes: int | None
    peak_bytes: int | None
    forward_flops: int
    counted_flops: int


CHECKS = (
    ("parameter bytes", "weights_bytes", "measured_weights_bytes"),
    ("{cache} bytes", "kv_cache_bytes", "measured_kv_cache_bytes"),
    ("forward FLOPs, by fvcore", "forward_flops", "counted_flops"),
)
"""Counts that a run checks: label, and keys of the formula and of the measurement."""


def measure(model: LoadedModel, request: Request, plan: Plan, *, progress: Tick = unwatched) -> MeasureReport:
    """Run one model on a device and compare time and bytes with the formulas. Needs torch and fvcore."""
    from tfacct.verify.measured import measured

    facts = measured(model, request, plan, progress)
    what = "training step" if plan.train else "decode step" if request.decode else "forward pass"
    cache = model_notes.cache_name([model])
    checks: tuple[Row, ...] = tuple(
        {
            "what": name.format(cache=cache),
            "value": f"{facts[measured]:,}",
            "formula": f"{facts[formula]:,}",
            "verdict": "ok" if facts[formula] == facts[measured] else "DIFFERS",
        }
        for name, formula, measured in CHECKS
    )
    peak: Row = {"what": "peak bytes", "value": f"{facts['peak_bytes']:,}"}
    columns = (
        Column("what", what),
        Column("value", "measured", "count"),
        Column("formula", "formula", "count"),
        Column("verdict", "", "verdict"),
    )
    differing = sum(row["verdict"] != "ok" for row in checks)
    partial = " (interrupted: what was finished)" if facts["interrupted"] else ""
    where = "resident memory of the process" if facts["device"].startswith("cpu") else "torch's allocator"
    counted = "its unfused equivalent" if plan.sdpa else "the model that ran"
    report = build.report(
        MeasureReport,
        [model],
        (columns, (_speeds(model, facts), (*checks, peak)), ()),
        [facts],
        title=f"{build.label(model)}: {what} in {units.dtype_name(plan.dtype)}"
        f" {build.of_workload([model], request)}{partial}",
        convention=CONVENTION,
        answer=f"{_time(facts['seconds_min'])} for a {what}, {units.percent(facts['mfu'])} of the matmul peak here;"
        + (
            f" {differing} of {len(checks)} counts differ."
            if differing
            else f" all {len(checks)} counts agree exactly."
        ),
        notes=lambda _: notes(RUN_NOTES, {**facts, "where": where, "counted": counted}),
        requests=[request],
        defaults=[],
        headline="total_flops",
        agrees=not differing,
    )
    return replace(report, interrupted=facts["interrupted"])


def _speeds(model: LoadedModel, facts: Mapping[str, Any]) -> tuple[Row, ...]:
    """Times, FLOP/s and MFU; of masked pairs too if the model has attention."""

    def flops(key: str) -> str:
        return f"{units.si(round(facts[key]))}FLOP/s"

    attention, masked = model_notes.attends([model]), "masked pairs only"
    full = ", full T × S" if attention else ""
    spread = facts["seconds_max"] / facts["seconds_min"] - 1
    found = {
        "wall time, fastest": _time(facts["seconds_min"]),
        "wall time, median": _time(facts["seconds_median"]),
        f"spread of {facts['runs']} runs": units.percent(spread, 0) if facts["runs"] > 1 else None,
        "tokens/s": f"{facts['tokens_per_second']:,.1f}",
        f"achieved{full}": flops("flops_per_second"),
        f"achieved, {masked}": flops("masked_flops_per_second") if attention else None,
        "matmul peak here": flops("peak_flops_per_second"),
        f"MFU{full}": units.percent(facts["mfu"]),
        f"MFU, {masked}": units.percent(facts["masked_mfu"]) if attention else None,
    }
    return tuple({"what": what, "value": value} for what, value in found.items() if value is not None)


RUN_NOTES = (
    NoteRow("above_peak", 1, lambda facts: above_peak(facts["mfu"])),
    NoteRow(
        "machine",
        2,
        lambda facts: {**facts, "how": f"; attention: {facts['attention']}" if facts["attention"] else ""},
        "{device_name} ({device}), torch {torch}, {threads} threads; random weights{how}.",
    ),
    NoteRow(
        "peak",
        2,
        lambda facts: facts["where"],
        "The peak is the fastest square matmul timed in this run. Peak bytes: {}.",
    ),
    NoteRow("counter", 3, lambda facts: facts["counted"], "fvcore counted {}."),
)


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
