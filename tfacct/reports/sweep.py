"""Numbers against knobs: every combination of contexts, batches and fields, and what was asked of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from math import prod
from operator import index
from time import monotonic
from typing import Any

from tfacct.arrays import evaluate
from tfacct.errors import UsageError
from tfacct.metrics import Metric, Point, attention_overtakes, metric, moved
from tfacct.ranges import MOST, Values
from tfacct.report import Cell, Column, Report, Row, Tick, unwatched
from tfacct.reports import _common as common
from tfacct.reports._points import CONVENTION, Terms
from tfacct.subject import Subject
from tfacct.workload import Request, check_size, new_tokens

DEFAULT = ("total_flops", "flops_per_token", "ratio_to_2params", "share.attn_scores_values")
MANY = 1000
"""Points from which on arrays are worth the import of numpy, where there is one."""
PATIENCE = 1.0
"""Seconds before progress is shown."""

LABELS = {
    "total_flops": "FLOPs",
    "flops_per_token": "/ token",
    "ratio_to_2params": "÷ 2·P·tok",
    "total_params": "params",
    "weights_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "kv_bytes_per_token": "KV / token",
    "total_bytes": "total",
    "total_read_bytes": "read",
    "total_written_bytes": "written",
    "flops_per_byte": "FLOP/B",
    "share.attn_scores_values": "scores + values",
}
"""Metrics whose name in a table is shorter than their key."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of every knob. `contexts` None: each model's own longest."""

    contexts: Collection[int] | None = None
    batches: Collection[int] = (1,)
    fields: Mapping[str, Sequence[Any]] | None = None

    def size(self, models: int) -> int:
        """How many combinations there are."""
        fields = (len(values) for values in (self.fields or {}).values())
        return models * prod(fields) * (1 if self.contexts is None else len(self.contexts)) * len(self.batches)

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination of fields."""
        names = list(self.fields or {})
        for values in product(*(self.fields or {}).values()):
            yield dict(zip(names, values, strict=True))

    @property
    def varied(self) -> list[str]:
        """The knobs that have more than one value."""
        knobs = {name: len(values) for name, values in (self.fields or {}).items()}
        knobs |= {"ctx": len(self.contexts or ()), "batch": len(self.batches)}
        return [name for name, values in knobs.items() if values > 1]


def sweep(
    load: Callable[[str, Mapping[str, Any]], Subject],
    models: Sequence[str],
    grid: Grid,
    *,
    metrics: Sequence[str] = DEFAULT,
    request: Request | None = None,
    terms: Terms | None = None,
    progress: Tick = unwatched,
) -> Report:
    """The metrics of every combination, exact. `load` reads a model with fields set over its config.

    `request` says the rest of the workload: decode or new tokens, logits. Raises UsageError for more than 10⁷ points.
    """
    request, terms = request or Request(), terms or Terms()
    grid = _checked(grid)
    if terms.train and (request.decode or request.tokens is not None):
        raise UsageError("--train counts whole sequences: it goes with neither --decode nor --tokens")
    points = grid.size(len(models))
    if points > MOST:
        raise UsageError(
            f"that makes {points:,} points: at most {MOST:,}", "`Model.evaluate` takes arrays: docs/python.md"
        )
    began = monotonic()

    def loaded(name: str) -> Iterator[Subject]:
        for number, settings in enumerate(grid.settings()):
            if monotonic() - began > PATIENCE:
                progress(f"reading {name}", number, points)
            yield load(name, settings)

    subjects = [list(loaded(name)) for name in models]
    every = [subject for settings in subjects for subject in settings]
    asked = [metric(name, (subject.ledger for subject in every)) for name in dict.fromkeys(metrics)]
    if clash := {metric.name for metric in asked} & set(grid.fields or {}):
        raise UsageError(f"{clash.pop()} is a metric here: it cannot be a field too")
    rows: list[dict[str, Any]] = []
    for subject in every:
        for values in _evaluated(subject, grid, asked, request, terms):
            rows.append(values)
            if len(rows) % 1000 == 0 and monotonic() - began > PATIENCE:
                progress("sweeping", len(rows), points)
    return _report(subjects, grid, asked, request, terms, rows)


def _checked(grid: Grid) -> Grid:
    """The grid with whole numbers for contexts and batches, at least one of each. Raises UsageError."""
    contexts = None if grid.contexts is None else _sizes("--ctx", grid.contexts)
    grid = replace(grid, contexts=contexts, batches=_sizes("--batch", grid.batches))
    for option, values in {"--ctx": grid.contexts, "--batch": grid.batches, **(grid.fields or {})}.items():
        if values is not None and not len(values):
            raise UsageError(f"{option} has no values")
    for name in grid.fields or {}:
        if name in ("model", "ctx", "batch"):
            raise UsageError(f"{name} is a knob of the sweep: a field of that name cannot be swept")
    return grid


def _sizes(option: str, values: Collection[int]) -> Collection[int]:
    """Whole numbers of at least 1; what was read from the command line is checked already."""
    if isinstance(values, Values):
        return values
    try:
        sizes = [index(value) for value in values]
    except TypeError:
        raise UsageError(f"{option} must be a collection of whole numbers, not {values!r}") from None
    for size in sizes:
        check_size(option, size)
    return sizes


def _evaluated(
    subject: Subject, grid: Grid, asked: Sequence[Metric], request: Request, terms: Terms
) -> Iterator[dict[str, Any]]:
    """One model's metrics at every context and batch."""
    contexts = [subject.context] if grid.contexts is None else grid.contexts
    smallest = common.workload(subject, _at(request, min(contexts), 1))
    point = terms.point(subject, smallest, asked)
    chunk = smallest.tokens if request.decode or request.tokens is not None else None
    if len(contexts) * len(grid.batches) >= MANY and find_spec("numpy") is not None:
        values = _through_arrays(subject, point, contexts, grid.batches, chunk, asked)
    else:
        values = (
            tuple(metric.of(there) for metric in asked)
            for there in (
                moved(point, context=context, tokens=chunk or context, batch=batch)
                for context, batch in product(contexts, grid.batches)
            )
        )
    for (context, batch), found in zip(product(contexts, grid.batches), values, strict=True):
        knobs = {"model": subject.name, **subject.changed, "ctx": context, "batch": batch}
        yield knobs | dict(zip((metric.name for metric in asked), found, strict=True))


def _through_arrays(
    subject: Subject,
    point: Point,
    contexts: Collection[int],
    batches: Collection[int],
    chunk: int | None,
    asked: Sequence[Metric],
) -> Iterator[tuple[Any, ...]]:
    """The same whole numbers, a thousand at once. Needs numpy."""
    knobs: dict[str, Any] = {"ctx": [[context] for context in contexts], "batch": [list(batches)]}
    knobs |= {} if chunk is None else {"tokens": chunk}
    arrays = [evaluate(metric, subject.architecture, point, knobs, exact=True) for metric in asked]
    return zip(*(array.ravel().tolist() for array in arrays), strict=True)


def _at(request: Request, context: int | None, batch: int) -> Request:
    return replace(request, ctx=context, batch=batch)


def _report(
    subjects: Sequence[Sequence[Subject]],
    grid: Grid,
    asked: Sequence[Metric],
    request: Request,
    terms: Terms,
    rows: list[dict[str, Any]],
) -> Report:
    first = [settings[0] for settings in subjects]
    knobs = [*(["model"] if len(first) > 1 else []), *grid.varied] or ["ctx"]
    drawn, each = asked[-1], len(rows) // len(subjects)
    return Report(
        command="sweep",
        title=_title(first, knobs, rows[0], request),
        columns=(
            *(Column(knob, knob, "text" if knob == "model" else "amount") for knob in knobs),
            *(Column(metric.name, LABELS.get(metric.name, metric.name), metric.unit) for metric in asked),
            Column("bar", "", "bar", drop=1),
        ),
        sections=tuple(
            tuple(_row(values, drawn) for values in rows[start : start + each]) for start in range(0, len(rows), each)
        ),
        notes=(
            *_crossing(subjects, grid, asked, request, terms),
            *terms.words(asked, request.logits),
            *common.window_notes([settings[0] for settings in subjects], masked=terms.masked),
            *common.defaulted_notes([_shared_defaults(settings) for settings in subjects]),
        ),
        hints=(
            *common.context_hints(first, Request(ctx=max(grid.contexts or [1]))),
            *common.unknown_hints(first),
        ),
        models=tuple(
            {
                **common.model_facts(subject),
                "set": {name: values[0] for name, values in (grid.fields or {}).items() if len(values) == 1},
                "swept": knobs,
                "metrics": [metric.name for metric in asked],
                **terms.facts(common.workload(subject, _at(request, *_corner(grid)))),
                "lines": rows[number * each : (number + 1) * each],
            }
            for number, subject in enumerate(map(_shared_defaults, subjects))
        ),
        convention=CONVENTION,
    )


def _corner(grid: Grid) -> tuple[int | None, int]:
    """The largest of the contexts and of the batches: the workload that the JSON names beside the lines."""
    return (max(grid.contexts) if grid.contexts else None), max(grid.batches)


def _title(first: Sequence[Subject], knobs: Sequence[str], values: Mapping[str, Any], request: Request) -> str:
    """The model, what varies, and what does not."""
    still = {name: value for name, value in values.items() if name in ("ctx", "batch") and name not in knobs}
    still |= {name: value for name, value in first[0].changed.items() if name not in knobs}
    if len(first) > 1 and "ctx" in still and len({subject.context for subject in first}) > 1:
        del still["ctx"]
    fixed = "".join(f", {name} {common.spoken(value)}" for name, value in still.items())
    new = 1 if request.decode else request.tokens
    fixed += "" if new is None else f", {new_tokens(new)}"
    return f"{first[0].name if len(first) == 1 else 'Sweep'} over {', '.join(knobs)}{fixed}"


def _shared_defaults(settings: Sequence[Subject]) -> Subject:
    """The first setting's model, with those of its defaults that every setting has."""
    first = settings[0]
    kept = {
        name: value
        for name, value in first.defaulted.items()
        if all(subject.defaulted.get(name) == value for subject in settings)
    }
    return replace(first, defaulted=kept, changed={})


def _row(values: Mapping[str, Any], drawn: Metric) -> Row:
    cells: dict[str, Cell] = {
        name: value if isinstance(value, (int, Fraction, str)) and not isinstance(value, bool) else common.spoken(value)
        for name, value in values.items()
    }
    return {**cells, "bar": Fraction(values[drawn.name])}


def _crossing(
    subjects: Sequence[Sequence[Subject]], grid: Grid, asked: Sequence[Metric], request: Request, terms: Terms
) -> list[str]:
    """Where attention overtakes the rest, in a sweep of one model over contexts that shows its share."""
    shown = any(metric.name == "share.attn_scores_values" for metric in asked)
    if len(subjects) > 1 or len(subjects[0]) > 1 or "ctx" not in grid.varied or not shown:
        return []
    work = common.workload(subjects[0][0], _at(request, *_corner(grid)))
    chunk = request.decode or request.tokens is not None
    return common.overtaken(attention_overtakes(terms.point(subjects[0][0], work), chunk=chunk))
