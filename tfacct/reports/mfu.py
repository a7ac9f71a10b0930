"""Model FLOPs utilization (MFU) of a run: the FLOPs that its speed needs, over the peak of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypedDict

from tfacct.accounts.metrics import Point
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading import devices
from tfacct.loading.model import LoadedModel
from tfacct.loading.where import MemoryLimit, of_device
from tfacct.output.answer import answers
from tfacct.output.report import Column, NoteRow, Report, Row, Table, notes
from tfacct.reports import build, selection
from tfacct.reports.keys import ModelReport
from tfacct.reports.keys import Workload as WorkloadFacts
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


class MfuLine(TypedDict):
    """What a convention counts of a run, and the share of the peak that it is."""

    convention: Convention
    flops_per_token: float
    flops_per_second: float
    mfu: float


class MfuReport(ModelReport):
    """Model FLOPs utilization of a run, in every convention; `mfu` is that of full attention."""

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
        "A step under FSDP needs at least {least} of {usable} on each device: adapters and offload need less.",
    ),
    NoteRow("source", 2, lambda run: run["source"], "Tokens are those of the decoder; each sequence reads {:,} more."),
    NoteRow(
        "convention",
        2,
        bool,
        "The answer counts full attention, as `tfacct flops` does. Recomputation is never counted.",
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
    said = f"{units.percent(full['mfu'])} MFU: {_tera(full['flops_per_second'])} of {_tera(peak)} TFLOP/s{each}."
    about = {
        "memory": train and _short(model, work, of_device(count, device, training=True)),
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
        title=f"{build.name_of(model)}: {step} on {device.several(count)}, {units_of}, context {work.context:,}",
        convention="2 FLOPs per multiply-add; no recomputation; over the dense peak of all devices together",
        answer=" ".join(filter(None, (said, above_peak(full["mfu"])))),
        notes=lambda _: notes(NOTES, about),
        requests=[request],
    )


def _speed(tokens_per_second: float | None, step_time: float | None, tokens: int) -> float:
    """Tokens per second of all devices. Raises UsageError unless exactly one of the two is given, above 0."""
    if (tokens_per_second is None) == (step_time is None):
        given = "one of the two, not both" if step_time is not None else "the speed of all devices together"
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
