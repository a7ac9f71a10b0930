"""Model FLOPs utilization (MFU) of a run: the FLOPs that its speed needs, over its devices' peak; or measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from tfacct.output.answer import answers
from tfacct.output.report import Column, NoteRow, Report, Row, Table, Tick, notes, unwatched
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
        "A full FSDP step needs at least {least} of {usable} per device; adapters or offload need less.",
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


@answers(MfuReport)
def mfu(
    model: LoadedModel,
    request: Request,
    on: str,
    *,
    tokens_per_second: float | None = None,
    step_time: float | None = None,
    dtype: str | None = None,
    train: bool = True,
) -> Report:
    """MFU of a training run, or of forward passes, in every convention.

    The speed is that of all devices together: `tokens_per_second`, or the seconds of one step of `request.batch` whole
    sequences. `dtype`: the units that multiply. Raises TfacctError.
    """
    count, device = devices.several(option("on"), on)
    units_of, peak = peak_of(device, dtype)
    if request.decode or request.tokens is not None:
        raise whole_sequences("tokens_per_second")
    work = selection.runnable(model, request)
    speed = _speed(tokens_per_second, step_time, work.batch * work.context)
    point = Point(model.ledger, work, train=train)
    missing: list[str] = []
    lines = list(_lines(point, speed / count, peak, missing))
    full = lines[0]
    each = " on each device" if count > 1 else ""
    rate = f"{_tera(full['flops_per_second'])} of {_tera(peak)} TFLOP/s{each}"
    sentence = f"{units.percent(full['mfu'])} MFU (full attention): {rate}."
    about = {
        "memory": train and _short(model, work, device_limit(count, device, training=True)),
        "source": work.source,
        "missing": missing,
    }
    step = "training" if train else "forward passes"
    return build.report(
        "mfu",
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
        given = "give one of the two" if step_time is not None else "the speed of all devices together"
        raise UsageError(f"give {option('tokens_per_second')} or {option('step_time')}", given)
    if tokens_per_second is not None:
        check_positive("tokens_per_second", tokens_per_second)
        return float(tokens_per_second)
    check_positive("step_time", step_time)
    return tokens / (step_time or 1)


def _short(model: LoadedModel, work: Workload, limit: MemoryLimit) -> dict[str, str]:
    """Memory of a step with one sequence on each device, in words; nothing where it may fit."""
    least = least_bytes(
        model.ledger, replace(work, batch=1).axes(), Trained(work.context, 1, limit.count, recompute=True)
    )
    words = {"least": units.binary(least), "usable": units.binary(limit.usable)}
    return words if least > limit.usable else {}


def _lines(point: Point, each: float, peak: float, missing: list[str]) -> Iterator[dict[str, Any]]:
    """What each convention counts at `each` tokens per second of a device; `missing` gets why the model lacks one."""
    for convention in CONVENTIONS:
        try:
            per_token = float(flops_per_token(point, convention))
        except TfacctError as error:
            missing.append(error.message)
            continue
        yield {
            "convention": convention,
            "flops_per_token": per_token,
            "flops_per_second": per_token * each,
            "mfu": utilization(per_token, each, peak),
        }


def _table(lines: list[dict[str, Any]]) -> Table:
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
    """FLOP/s in 10^12, with three digits."""
    return units.three(flops / 1e12)


# A run that is measured


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


@answers(MeasureReport)
def measure(model: LoadedModel, request: Request, plan: Plan, *, progress: Tick = unwatched) -> Report:
    """Run one model on a device and compare time and bytes with the formulas. Needs torch and fvcore."""
    from tfacct.verify.measured import measured

    return _report(model, request, plan, measured(model, request, plan, progress))


def _report(model: LoadedModel, request: Request, plan: Plan, facts: Mapping[str, Any]) -> Report:
    spread = facts["seconds_max"] / facts["seconds_min"] - 1
    attention = model_notes.attends([model])
    full = ", full T × S" if attention else ""
    what = "training step" if plan.train else "decode step" if request.decode else "forward pass"
    speed: list[Row] = [
        {"what": "wall time, fastest", "value": _time(facts["seconds_min"])},
        {"what": "wall time, median", "value": _time(facts["seconds_median"])},
        *(
            [{"what": f"spread of {facts['runs']} runs", "value": units.percent(spread, 0)}]
            if facts["runs"] > 1
            else []
        ),
        {"what": "tokens/s", "value": f"{facts['tokens_per_second']:,.1f}"},
        {"what": f"achieved{full}", "value": f"{units.si(round(facts['flops_per_second']))}FLOP/s"},
        {"what": "achieved, masked pairs only", "value": f"{units.si(round(facts['masked_flops_per_second']))}FLOP/s"},
        {"what": "matmul peak here", "value": f"{units.si(round(facts['peak_flops_per_second']))}FLOP/s"},
        {"what": f"MFU{full}", "value": units.percent(facts["mfu"])},
        {"what": "MFU, masked pairs only", "value": units.percent(facts["masked_mfu"])},
    ]
    if not attention:
        speed = [row for row in speed if "masked" not in str(row["what"])]
    checks = (
        ("parameter bytes", "weights_bytes", "measured_weights_bytes"),
        (f"{model_notes.cache_name([model])} bytes", "kv_cache_bytes", "measured_kv_cache_bytes"),
        ("forward FLOPs, by fvcore", "forward_flops", "counted_flops"),
    )
    held: list[Row] = [
        {
            "what": name,
            "value": f"{facts[measured]:,}",
            "formula": f"{facts[formula]:,}",
            "verdict": "ok" if facts[formula] == facts[measured] else "DIFFERS",
        }
        for name, formula, measured in checks
    ]
    held.append({"what": "peak bytes", "value": f"{facts['peak_bytes']:,}"})
    columns = (
        Column("what", what),
        Column("value", "measured", "count"),
        Column("formula", "formula", "count"),
        Column("verdict", "", "verdict"),
    )
    partial = " (interrupted: what was finished)" if facts["interrupted"] else ""
    where = "resident memory of the process" if facts["device"].startswith("cpu") else "torch's allocator"
    counted = "its unfused equivalent" if plan.sdpa else "the model that ran"
    report = build.report(
        "measure",
        [model],
        (columns, (tuple(speed), tuple(held)), ()),
        [facts],
        title=f"{build.label(model)}: {what} in {units.dtype_name(plan.dtype)}"
        f" {build.of_workload([model], request)}{partial}",
        convention=CONVENTION,
        answer=_answer(what, facts, [row["verdict"] == "ok" for row in held if "verdict" in row]),
        notes=lambda _: notes(RUN_NOTES, {**facts, "where": where, "counted": counted}),
        requests=[request],
        defaults=[],
        headline="total_flops",
        agrees=all(facts[formula] == facts[measured] for _, formula, measured in checks),
    )
    return replace(report, interrupted=facts["interrupted"])


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
        "The peak is the fastest square matmul timed in this run. Peak: {} bytes.",
    ),
    NoteRow("counter", 3, lambda facts: facts["counted"], "fvcore counted {}."),
)


def _answer(what: str, facts: Mapping[str, Any], agreeing: Sequence[bool]) -> str:
    """How long it took, how near the peak that is, and whether the counts were right."""
    took = f"{_time(facts['seconds_min'])} for a {what}, {units.percent(facts['mfu'])} of the matmul peak here"
    if all(agreeing):
        return f"{took}; all {len(agreeing)} counts agree exactly."
    return f"{took}; {len(agreeing) - sum(agreeing)} of {len(agreeing)} counts differ."


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"
