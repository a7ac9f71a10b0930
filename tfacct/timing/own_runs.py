"""A user's own measured runs, which correct the estimates for a model on its devices.

A file is a CSV table with a row for each run: `requests` at all times, tokens of a `prompt`, `new` tokens of an answer,
and either `tokens_per_second` of all requests or `ttft_ms` and `tpot_ms`, means of requests.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.loading import files
from tfacct.timing.placement import Placement

SIZES = ("requests", "prompt", "new")
SPEEDS = (("tokens_per_second",), ("ttft_ms", "tpot_ms"))
"""Columns that give a run's speed: one or the other."""
FILE = "a CSV with requests,prompt,new,tokens_per_second or requests,prompt,new,ttft_ms,tpot_ms"
MOST = 1000
"""Largest number of runs of a file."""


class OwnRun(NamedTuple):
    """A measured run: concurrent requests, tokens of each, and seconds of one request."""

    requests: int
    prompt: int
    new: int
    seconds: float


def read(path: str) -> tuple[OwnRun, ...]:
    """The runs of a file. Raises TfacctError for one without runs, or that names no speed."""
    rows = list(csv.DictReader(files.read(Path(path)).decode(errors="replace").splitlines()))
    if not 1 <= len(rows) <= MOST:
        raise UsageError(f"{path}: {len(rows):,} runs, not 1 to {MOST:,}", FILE)
    return tuple(_run(path, number, row) for number, row in enumerate(rows, start=1))


def _run(path: str, number: int, row: Mapping[str, str]) -> OwnRun:
    speed = next((names for names in SPEEDS if all(row.get(name) for name in names)), None)
    if speed is None or not all(row.get(name) for name in SIZES):
        raise UsageError(f"{path}: run {number:,} lacks a column", FILE)
    values = {name: _positive(path, number, name, row[name]) for name in (*SIZES, *speed)}
    for name in SIZES:
        if values[name] % 1:
            raise UsageError(f"{path}: {name} of run {number:,} must be a whole number, not {row[name]}")
    requests, prompt, new = (int(values[name]) for name in SIZES)
    if "tokens_per_second" in values:
        return OwnRun(requests, prompt, new, requests * new / values["tokens_per_second"])
    return OwnRun(requests, prompt, new, (values["ttft_ms"] + (new - 1) * values["tpot_ms"]) / 1e3)


def _positive(path: str, number: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        raise UsageError(f"{path}: {name} of run {number:,} must be a number above 0, not {text!r}", FILE)
    return value


def corrected(one: Placement, runs: Sequence[OwnRun]) -> Placement:
    """The placement with steps that take longer by a factor: the mean of measured over estimated seconds, by their
    logarithms. Where errors are known, the estimate itself counts as one more run. Raises UsageError for a factor far
    from 1."""
    off = [log(run.seconds / one.host.served(run.requests, run.prompt, run.new).request) for run in runs]
    pace = exp(sum(off) / (len(off) + (not one.unmeasured)))
    if not 0.05 < pace < 20:
        raise UsageError(
            f"{option('measured')}: {one.model.name} took {pace:.3g} times the estimate on {one.where}",
            "check that the runs are of this model on these devices",
        )
    host = replace(one.host, constants=replace(one.host.constants, pace=pace))
    return replace(one, host=host, own_runs=len(off))
