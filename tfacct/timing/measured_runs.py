"""A user's own measured runs, which correct the estimates for a model on its devices.

A file is a CSV table with a row for each run: `requests` at all times, tokens of a `prompt`, `new` tokens of an answer,
and either `tokens_per_second` of all requests or `ttft_ms` and `tpot_ms`, means of requests. A row with both is one
run whose speeds must agree.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.spelling import option
from tfacct.loading import files
from tfacct.timing.placement import Placement

SIZES = ("requests", "prompt", "new")
FILE = "a CSV with requests,prompt,new,tokens_per_second or requests,prompt,new,ttft_ms,tpot_ms"
MOST = 1000
"""Largest number of runs of a file."""
APART = 1.1
"""Largest ratio of the two speeds of one run."""
SLOWEST = 10
"""Largest ratio of a measured time to its estimate: a slower run is of another model, or of other devices."""
CHECK = "check that the runs are of this model on these devices"


class MeasuredRun(NamedTuple):
    """A measured run: concurrent requests, tokens of each, and seconds of one request."""

    requests: int
    prompt: int
    new: int
    seconds: float


def read(path: str) -> tuple[MeasuredRun, ...]:
    """The runs of a file, whose columns a comma, a semicolon or a tab separates. Raises TfacctError."""
    lines = files.read(Path(path)).decode("utf-8-sig", errors="replace").strip().splitlines() or [""]
    table = csv.DictReader(lines, delimiter=max(",;\t", key=lines[0].count), skipinitialspace=True)
    try:
        table.fieldnames = [name.strip() for name in table.fieldnames or ()]
        rows = list(table)
        if twice := next((name for name in table.fieldnames if name and table.fieldnames.count(name) > 1), None):
            raise UsageError(f"{path}: two columns have the name {cut(twice)}", FILE)
    except csv.Error as error:
        raise UsageError(f"{path}: line {table.line_num + 1:,} is not CSV: {error}", FILE) from None
    if not 1 <= len(rows) <= MOST:
        raise UsageError(f"{path}: {len(rows):,} runs, not 1 to {MOST:,}", FILE)
    return tuple(_run(path, number, row) for number, row in enumerate(rows, start=1))


def _run(path: str, number: int, row: Mapping[str | None, str]) -> MeasuredRun:
    def value(name: str, *, whole: bool = False) -> float:
        try:
            found = float(row[name])
        except ValueError:
            found = 0.0
        if not 0 < found < 1e12 or (whole and found % 1):
            what = f"a{' whole' if whole else ''} number above 0"
            raise UsageError(f"{path}: {name} of run {number:,} must be {what}, not {row[name]!r}", FILE)
        return found

    if None in row:
        raise UsageError(f"{path}: run {number:,} has more cells than the first line has names", FILE)
    by_rate, by_times = bool(row.get("tokens_per_second")), bool(row.get("ttft_ms") and row.get("tpot_ms"))
    if missing := [*(name for name in SIZES if not row.get(name)), *([] if by_rate or by_times else ["speed"])]:
        raise UsageError(f"{path}: run {number:,} has no {missing[0]}", FILE)
    requests, prompt, new = (int(value(name, whole=True)) for name in SIZES)
    seconds = [requests * new / value("tokens_per_second")] if by_rate else []
    seconds += [(value("ttft_ms") + (new - 1) * value("tpot_ms")) / 1e3] if by_times else []
    if max(seconds) > APART * min(seconds):
        raise UsageError(
            f"{path}: the speeds of run {number:,} disagree: a request takes {units.seconds(seconds[0])} by"
            f" tokens_per_second, {units.seconds(seconds[1])} by ttft_ms and tpot_ms",
            "leave one of them empty",
        )
    return MeasuredRun(requests, prompt, new, seconds[0])


def corrected(one: Placement, runs: Sequence[MeasuredRun], usable: int) -> Placement:
    """The placement with steps that take longer by a factor: the mean of measured over estimated seconds, by their
    logarithms. Where errors are known, the estimate itself counts as one more run. Raises UsageError for a run that is
    faster than the lower bound or far slower than the estimate, or whose cache does not fit into the `usable` bytes of
    each device."""
    off = list[float]()
    for number, run in enumerate(runs, start=1):
        name, context = f"{option('measured')}: run {number:,}", run.prompt + run.new
        fitting = one.host.capacity(context, usable)
        served = one.host.served(run.requests, run.prompt, run.new)
        rate, limit, estimate = (
            units.three(run.requests * run.new / each) for each in (run.seconds, served.request_bound, served.request)
        )
        problem = ""
        if run.requests > fitting:
            problem = f"{run.requests:,} requests of {context:,} tokens, but {one.where} has memory for the cache of"
            problem += f" {fitting:,}"
        elif run.seconds < served.request_bound:
            problem = f"{rate} tokens/s, but the peaks of {one.where} limit {one.model.name} to {limit}"
        elif run.seconds > SLOWEST * served.request:
            problem = f"{rate} tokens/s, less than 1/{SLOWEST} of the estimate for {one.model.name} on {one.where},"
            problem += f" {estimate}"
        if problem:
            raise UsageError(f"{name} has {problem}", CHECK)
        off.append(log(run.seconds / served.request))
    pace = exp(sum(off) / (len(off) + (not one.unmeasured)))
    host = replace(one.host, constants=replace(one.host.constants, pace=pace))
    return replace(one, host=host, measured_runs=tuple(exp(each) / pace for each in off))
