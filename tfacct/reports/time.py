"""Time of a step on devices: a row for each kernel, and what no device of these peaks goes below."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, new_tokens
from tfacct.loading import devices
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Cell, Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.budget import of_device
from tfacct.reports.placed import (
    CONVENTION,
    Placed,
    assumptions,
    check_room,
    error_said,
    files_said,
    interval,
    link_said,
    placed,
    stored_said,
    through,
    validation_facts,
)
from tfacct.timing.timing import Step, Timed, least_read

BOUND = "never below"


class Alike(NamedTuple):
    """Kernels of one name in all groups of blocks."""

    name: str
    times: int
    flops: int
    bytes: int
    limit: str
    seconds: float


def time(
    subject: LoadedModel,
    request: Request,
    on: str,
    *,
    prefill: bool = False,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    ep: int = 1,
    bound_only: bool = False,
    use: float | None = None,
    reserve: int | str | None = None,
) -> Report:
    """Seconds of a decode step, of `tokens` new tokens, or with `prefill` of whole prompts. Raises TfacctError, also
    where weights and cache do not fit into the usable memory."""
    count, device = devices.several(option("on"), on)
    memory = of_device(count, device, use, reserve)
    if prefill and (request.decode or request.tokens is not None):
        other = "decode" if request.decode else "tokens"
        raise UsageError(f"{option('prefill')} does not go with {option(other)}", "leave one of the two out")
    if not prefill and request.tokens is None:
        request = replace(request, decode=True)
    if device.calibration is not None:
        from tfacct.reports.time_calibrated import time_calibrated

        if bound_only or ep != 1 or kv_dtype is not None:
            given = "bound_only" if bound_only else "ep" if ep != 1 else "kv_dtype"
            raise UsageError(f"{option(given, True)} is of engines: {device.id} was swept with the reference model")
        return time_calibrated(subject, request, memory, train=False, dtype=dtype)
    request = replace(request, logits="last")
    one = placed(subject, on, dtype=dtype, kv_dtype=kv_dtype, ep=ep)
    work = counting.runnable(subject, request)
    check_room(one, work.context, work.batch, memory)
    step = one.host.step(work)
    rows = _rows(step, one, bound_only)
    what = "one decode step" if work.tokens == 1 else "a prefill" if prefill else f"a step of {new_tokens(work.tokens)}"
    words = f"context {work.context:,}, batch {work.batch:,}"
    return compose.report(
        "time",
        [subject],
        _bound_table(rows, step) if bound_only else _table(rows, step, one, work),
        [_facts(one, work, step, rows, bound_only)],
        title=f"{compose.name_of(subject)}: {what} on {one.where}, {one.stored}, {words}",
        convention=CONVENTION,
        answer=_answer(one, work, step, bound_only),
        notes=lambda _: _notes(one, work, bound_only),
        requests=[request],
    )


def _rows(step: Step, one: Placed, bound_only: bool) -> list[Alike]:
    """Kernels by name, in order; all-reduces, and work that is no product, each in one row behind them. Their bytes:
    all that they move, or those that the bound takes."""
    found: dict[str, list[Timed]] = {}
    for kind in ("", "pointwise", "all-reduce"):
        for timed in step.kernels:
            last = timed.kernel.kind if timed.kernel.kind in ("pointwise", "all-reduce") else ""
            if last == kind:
                name = f"all-reduce over {one.count:,}" if kind == "all-reduce" else timed.kernel.name
                found.setdefault(name, []).append(timed)
    return [
        Alike(
            name,
            sum(each.kernel.times for each in alike),
            sum(each.kernel.flops for each in alike),
            round(sum(_least(each) if bound_only else each.bytes for each in alike)),
            max(alike, key=lambda each: each.seconds).limit,
            sum(each.seconds for each in alike),
        )
        for name, alike in found.items()
    ]


def _least(timed: Timed) -> float:
    """Bytes of weights and cache that are read wherever tokens are sent."""
    return timed.kernel.cache + least_read(timed.kernel)


def _table(rows: list[Alike], step: Step, one: Placed, work: Workload) -> Table:
    whole = step.seconds
    shown: list[Row] = [
        {**_cells(row), "limit": row.limit, "seconds": Fraction(row.seconds), "share": Fraction(row.seconds / whole)}
        for row in rows
    ]
    host: dict[str, Cell] = {"kernel": "engine", "times": 1, "limit": "host"}
    shown.append({**host, "seconds": Fraction(step.engine), "share": Fraction(step.engine / whole)})
    totals: list[Row] = [{"kernel": "step", "seconds": f"≈ {units.seconds(whole)}"}]
    if (ends := interval(one, whole, work.batch, step.bound)) is not None:
        totals.append({"kernel": "80% interval", "seconds": through(ends), PLAIN: 1})
    totals.append({"kernel": BOUND, "seconds": units.seconds(step.bound), PLAIN: 1})
    columns = (
        Column("kernel", "kernel"),
        Column("times", "times", "count", drop=3),
        Column("flops", "FLOPs", "flops", drop=2),
        Column("bytes", "bytes", "bytes", drop=2),
        Column("limit", "limit", drop=5),
        Column("seconds", "≈ time", "seconds"),
        Column("share", "share", "share", drop=4),
    )
    return columns, (tuple(shown),), tuple(totals)


def _cells(row: Alike) -> dict[str, Any]:
    return {"kernel": row.name, "times": row.times, "flops": row.flops or None, "bytes": row.bytes or None}


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
    columns = (
        Column("kernel", "kernel"),
        Column("times", "times", "count", drop=3),
        Column("flops", "FLOPs", "flops"),
        Column("bytes", "bytes", "bytes"),
        Column("seconds", "", "seconds"),
    )
    return columns, (tuple(_cells(row) for row in rows if row.flops or row.bytes),), tuple(totals)


def _answer(one: Placed, work: Workload, step: Step, bound_only: bool) -> str:
    per = work.batch * work.tokens
    if bound_only:
        least = units.seconds(step.bound)
        return f"At the peaks {_of(work)} takes {least}, never less: at most {units.three(per / step.bound)} tokens/s."
    ends = interval(one, step.seconds, work.batch, step.bound)
    between = f", {through(ends)} in 4 of 5 cases" if ends else ""
    return f"≈ {units.seconds(step.seconds)} for {_of(work)}{between}: ≈ {units.three(per / step.seconds)} tokens/s."


def _notes(one: Placed, work: Workload, bound_only: bool) -> list[str]:
    peaks = "The bound is all FLOPs at the peaks or weights and cache at the bandwidth, whichever takes longer."
    if one.subject.ledger.experts:
        peaks += " Of a bank it reads the experts of one token: which others are read, routing decides."
    said = [] if bound_only else [error_said(one, work.batch)]
    return [*files_said(one), *said, *link_said(one), stored_said(one), *([peaks] if bound_only else [])]


def _facts(one: Placed, work: Workload, step: Step, rows: list[Alike], bound_only: bool) -> dict[str, Any]:
    per = work.batch * work.tokens
    ends = None if bound_only else interval(one, step.seconds, work.batch, step.bound)
    lines = [
        {
            "kernel": row.name,
            "times": row.times,
            "flops": row.flops,
            "bytes": row.bytes,
            "limit": row.limit,
            "seconds": None if bound_only else row.seconds,
        }
        for row in rows
    ]
    return {
        "workload": counting.workload_facts(work, masked=True, dtype=one.dtype),
        "on": one.facts(),
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
