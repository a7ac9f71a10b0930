"""Numbers against knobs: every combination of contexts, batches and fields, and what was asked of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from math import prod
from operator import index
from time import monotonic
from typing import Any

from tfacct.accounts.metrics import Metric, Point, attention_overtakes, metric, moved
from tfacct.algebra.arrays import evaluate
from tfacct.base.errors import UsageError
from tfacct.base.ranges import FOR_MORE, MOST, Values
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, check_size, new_tokens, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Cell, Column, Report, Row, Table, Tick, unwatched
from tfacct.reports import cells, compose, conventions, counting, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.conventions import CONVENTION
from tfacct.reports.counting import Counting

DEFAULT = ("total_flops", "flops_per_token", "ratio_to_rule_of_thumb", "share.attn_scores_values")
WITHOUT_ATTENTION = (*DEFAULT[:-1], "share.mamba")
MANY = 1000
"""Points from which on arrays are worth the import of numpy, where there is one."""
PATIENCE = 1.0
"""Seconds before progress is shown."""

LABELS = {
    "total_flops": "FLOPs",
    "flops_per_token": "/ token",
    "total_params": "params",
    "weights_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "kv_bytes_per_token": "first token",
    "kv_bytes_next_token": "next token",
    "total_bytes": "total",
    "total_read_bytes": "read",
    "total_written_bytes": "written",
    "flops_per_byte": "FLOP/B",
    "share.attn_scores_values": "scores + values",
    "share.mamba": "mamba",
}
"""Metrics whose name in a table is shorter than their key."""


def label(name: str, *, train: bool = False) -> str:
    """What a table calls a metric."""
    return cells.ratio_label(train) if name == "ratio_to_rule_of_thumb" else LABELS.get(name, name)


@record
class Grid:
    """The values of every knob. `contexts` None: each model's own longest."""

    contexts: Collection[int] | None = None
    batches: Collection[int] = (1,)
    fields: Mapping[str, Sequence[Any]] | None = None

    def size(self, models: int) -> int:
        """Number of combinations."""
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
    load: Callable[[str, Mapping[str, Any]], LoadedModel],
    models: Sequence[str],
    grid: Grid,
    *,
    metrics: Sequence[str] = DEFAULT,
    request: Request | None = None,
    terms: Counting | None = None,
    progress: Tick = unwatched,
) -> Report:
    """The metrics of every combination, exact. `load` reads a model with fields set over its config.

    `request` says the rest of the workload: decode or new tokens, logits. Raises UsageError for more points than MOST.
    """
    request, terms = request or Request(), terms or Counting()
    grid = _checked(grid)
    if terms.train and (request.decode or request.tokens is not None):
        raise whole_sequences("train")
    points = grid.size(len(models))
    if points > MOST:
        raise UsageError(f"that makes {points:,} points: at most {MOST:,}", FOR_MORE)
    began = monotonic()

    def loaded(name: str) -> Iterator[LoadedModel]:
        for number, settings in enumerate(grid.settings()):
            if monotonic() - began > PATIENCE:
                progress(f"reading {name}", number, points)
            yield load(name, settings)

    subjects = [list(loaded(name)) for name in models]
    every = [subject for settings in subjects for subject in settings]
    if tuple(metrics) == DEFAULT and not sentences.attends(every):
        metrics = WITHOUT_ATTENTION
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
    contexts = None if grid.contexts is None else _sizes(option("ctx"), grid.contexts)
    grid = replace(grid, contexts=contexts, batches=_sizes(option("batch"), grid.batches))
    knobs = {option("ctx"): grid.contexts, option("batch"): grid.batches, **(grid.fields or {})}
    for knob, values in knobs.items():
        if values is not None and not len(values):
            raise UsageError(f"{knob} has no values")
    for name in grid.fields or {}:
        if name in ("model", "ctx", "batch"):
            raise UsageError(f"{name} is a knob of the sweep: a field of that name cannot be swept")
    return grid


def _sizes(what: str, values: Collection[int]) -> Collection[int]:
    """Whole numbers of at least 1; what was read from the command line is checked already."""
    if isinstance(values, Values):
        return values
    try:
        if len(values) > MOST:
            raise UsageError(f"{what} has {len(values):,} values: at most {MOST:,}", FOR_MORE)
        sizes = [index(value) for value in values]
    except TypeError:
        raise UsageError(f"{what} must be a collection of whole numbers, not {values!r}") from None
    for size in sizes:
        check_size(what, size)
    return sizes


def _evaluated(
    subject: LoadedModel, grid: Grid, asked: Sequence[Metric], request: Request, terms: Counting
) -> Iterator[dict[str, Any]]:
    """One model's metrics at every context and batch."""
    contexts = [subject.context] if grid.contexts is None else grid.contexts
    smallest = counting.workload(subject, _at(request, min(contexts), 1))
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
    subject: LoadedModel,
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
    subjects: Sequence[Sequence[LoadedModel]],
    grid: Grid,
    asked: Sequence[Metric],
    request: Request,
    terms: Counting,
    rows: list[dict[str, Any]],
) -> Report:
    knobs = _knobs(subjects, grid)
    drawn, each = asked[-1], len(rows) // len(subjects)
    alike = [_shared_defaults(settings) for settings in subjects]
    table: Table = (
        (
            *(Column(knob, knob, "text" if knob == "model" else "amount", names_rows=True) for knob in knobs),
            *(Column(metric.name, label(metric.name, train=terms.train), metric.unit) for metric in asked),
            Column("bar", "", "bar", drop=2),
        ),
        tuple(
            tuple(_row(values, drawn) for values in rows[start : start + each]) for start in range(0, len(rows), each)
        ),
        (),
    )

    def notes(at: slice) -> list[str]:
        every = [subject for settings in subjects[at] for subject in settings]
        return [
            *_crossing(subjects[at], grid, asked, request, terms),
            *conventions.counted(every, asked, terms, request.logits),
            *(sentences.window_notes(every, masked=terms.masked) if len(subjects[at]) == 1 else ()),
            *_forms(subjects[at], grid, asked, request, terms),
        ]

    return compose.report(
        "sweep",
        alike,
        table,
        [
            {
                "set": {name: values[0] for name, values in (grid.fields or {}).items() if len(values) == 1},
                "swept": knobs,
                "metrics": [metric.name for metric in asked],
                **terms.facts(counting.workload(_longest(settings), _at(request, *_corner(grid)))),
                "lines": rows[number * each : (number + 1) * each],
            }
            for number, settings in enumerate(subjects)
        ],
        title=_title(subjects, knobs, rows[0], request),
        convention=CONVENTION,
        notes=notes,
        requests=[_at(request, max(grid.contexts) if grid.contexts else None, 1)],
        settings=subjects,
    )


def _knobs(subjects: Sequence[Sequence[LoadedModel]], grid: Grid) -> list[str]:
    """What tells one row from another: the knobs that vary, and the context where settings have their own."""
    own = grid.contexts is None and any(len({subject.context for subject in settings}) > 1 for settings in subjects)
    return [*(["model"] if len(subjects) > 1 else []), *grid.varied, *(["ctx"] if own else [])] or ["ctx"]


def _longest(settings: Sequence[LoadedModel]) -> LoadedModel:
    """The setting with the longest context."""
    return max(settings, key=lambda subject: subject.context)


def _forms(
    subjects: Sequence[Sequence[LoadedModel]], grid: Grid, asked: Sequence[Metric], request: Request, terms: Counting
) -> list[str]:
    """Which forms latent attention runs in: a longer context moves a step from one to the other once."""
    ends = [None] if grid.contexts is None else [min(grid.contexts), max(grid.contexts)]
    every = [subject for settings in subjects for subject in settings if latent.form(subject) is not None]
    steps = [(subject, counting.workload(subject, _at(request, end, 1))) for subject in every for end in ends]
    return latent.notes(steps, asked, masked=terms.masked)


def _corner(grid: Grid) -> tuple[int | None, int]:
    """The largest of the contexts and of the batches: the workload that the JSON names beside the lines."""
    return (max(grid.contexts) if grid.contexts else None), max(grid.batches)


def _title(
    subjects: Sequence[Sequence[LoadedModel]], knobs: Sequence[str], values: Mapping[str, Any], request: Request
) -> str:
    """The model, what varies, and what does not."""
    first = [settings[0] for settings in subjects]
    still = {name: value for name, value in values.items() if name in ("ctx", "batch") and name not in knobs}
    still |= {name: value for name, value in first[0].changed.items() if name not in knobs}
    if len(first) > 1 and "ctx" in still and len({subject.context for subject in first}) > 1:
        del still["ctx"]
    fixed = "".join(f", {name} {compose.spoken(value)}" for name, value in still.items())
    new = 1 if request.decode else request.tokens
    fixed += "" if new is None else f", {new_tokens(new)}"
    return f"{first[0].name if len(first) == 1 else 'Sweep'} over {', '.join(knobs)}{fixed}"


def _shared_defaults(settings: Sequence[LoadedModel]) -> LoadedModel:
    """The first setting's model, with those of its defaults that every setting has."""
    first = settings[0]
    kept = {
        name: value
        for name, value in first.defaulted.items()
        if all(subject.defaulted.get(name) == value for subject in settings)
    }
    return replace(first, defaulted=kept, changed={})


def _row(values: Mapping[str, Any], drawn: Metric) -> Row:
    row: dict[str, Cell] = {
        name: value
        if isinstance(value, (int, Fraction, str)) and not isinstance(value, bool)
        else compose.spoken(value)
        for name, value in values.items()
    }
    return {**row, "bar": Fraction(values[drawn.name])}


def _crossing(
    subjects: Sequence[Sequence[LoadedModel]], grid: Grid, asked: Sequence[Metric], request: Request, terms: Counting
) -> list[str]:
    """Where attention overtakes the rest, in a sweep of one model over contexts that shows its share."""
    shown = any(metric.name == "share.attn_scores_values" for metric in asked)
    if len(subjects) > 1 or len(subjects[0]) > 1 or "ctx" not in grid.varied or not shown:
        return []
    work = counting.workload(subjects[0][0], _at(request, *_corner(grid)))
    chunk = request.decode or request.tokens is not None
    return sentences.overtaken(attention_overtakes(terms.point(subjects[0][0], work), chunk=chunk))
