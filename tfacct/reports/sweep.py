"""Numbers against knobs: every combination of contexts, batches and fields, and what was asked of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from time import monotonic
from typing import Any

from tfacct.accounts.metrics import Metric, Point, metric, moved
from tfacct.algebra.arrays import evaluate
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.ranges import FOR_MORE, MOST
from tfacct.ledger.workload import Request, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Tick, unwatched
from tfacct.reports import counting, sentences, sweep_table
from tfacct.reports.counting import Counting, LeftOut
from tfacct.reports.grid import Grid, at, checked
from tfacct.reports.ranks import mesh_of
from tfacct.reports.sweep_table import Swept

DEFAULT = ("total_flops", "flops_per_token", "ratio_to_rule_of_thumb", "share.attn_scores_values")
MANY = 1000
"""Points from which on arrays are worth the import of numpy, where there is one."""
PATIENCE = 1.0
"""Seconds before progress is shown."""


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

    `request` says the rest of the workload: decode or new tokens, logits. A combination that cannot be is skipped, and
    named. Raises UsageError for more points than MOST, and TfacctError where no combination can be.
    """
    request, terms = request or Request(), terms or Counting()
    grid = checked(grid)
    if terms.train and (request.decode or request.tokens is not None):
        raise whole_sequences("train")
    points = grid.size(len(models))
    if points > MOST:
        raise UsageError(f"that makes {points:,} points: at most {MOST:,}", FOR_MORE)
    began = monotonic()

    def tick(what: str, done: int) -> None:
        if monotonic() - began > PATIENCE:
            progress(what, done, points)

    found = [_read(load, name, grid, tick) for name in models]
    every = [subject for swept in found for subject in swept.settings]
    if not every:
        raise found[0].refused[0]
    if tuple(metrics) == DEFAULT and "pp" in (grid.ranks or {}):
        metrics = DEFAULT[:1]  # by which stages can be compared
    if tuple(metrics) == DEFAULT and not sentences.attends(every):
        metrics = (*DEFAULT[:-1], *(f"share.{mixer.name}" for mixer in sentences.mixers(every)))
    asked = [metric(name, (subject.ledger for subject in every)) for name in dict.fromkeys(metrics)]
    terms.check_recipe(asked, "a metric such as peak_bytes")
    if clash := {metric.name for metric in asked} & set(grid.knobs):
        raise UsageError(f"{clash.pop()} is a metric, so it cannot be swept as a field")
    done = 0
    for swept in found:
        for subject in list(swept.settings):
            try:
                _sweep(swept, subject, grid, asked, request, terms)
            except (ConfigError, UsageError) as error:
                swept.settings.remove(subject)
                swept.skip(subject.name, subject.changed, error)
            if (len(swept.rows) + done) // MANY > done // MANY:
                tick("sweeping", len(swept.rows) + done)
        done += len(swept.rows)
    answered = [swept for swept in found if swept.rows]
    if not answered:
        raise next(error for swept in found for error in swept.refused)
    others = zip(models, found, strict=True)
    left_out = [LeftOut((name,), swept.skipped[0]["why"]) for name, swept in others if not swept.rows]
    return sweep_table.report(answered, grid, asked, request, terms, left_out)


def _read(
    load: Callable[[str, Mapping[str, Any]], LoadedModel], name: str, grid: Grid, tick: Callable[[str, int], None]
) -> Swept:
    """A model in every setting that it can have."""
    swept = Swept()
    for number, fields in enumerate(grid.settings()):
        tick(f"reading {name}", number)
        try:
            own = {axis: fields.pop(axis) for axis in grid.ranks or {}}
            subject = load(name, fields)
            swept.settings.append(replace(subject, changed={**subject.changed, **own}) if own else subject)
        except ConfigError as error:
            swept.skip(name, fields, error)
    return swept


def _sweep(
    swept: Swept, subject: LoadedModel, grid: Grid, asked: Sequence[Metric], request: Request, terms: Counting
) -> None:
    """Add one model's metrics at every context and batch. Raises UsageError where none of them can be."""
    if not all(counting.takes_context(subject, context) for context in grid.contexts or ()):
        raise counting.other_context(subject)
    if grid.ranks:
        own: dict[str, Any] = {axis: subject.changed[axis] for axis in grid.ranks}
        terms = replace(terms, mesh=mesh_of(**own, sp=grid.sp and own["tp"] > 1))
    contexts = [subject.context] if grid.contexts is None else grid.contexts
    pieces = 1 if terms.mesh is None else terms.mesh.pieces
    whys = {context: why for context in contexts if (why := _why_not(context, request, pieces))}
    held = [context for context in contexts if context not in whys] if whys else contexts
    swept.rows.extend(_evaluated(subject, held or contexts, grid.batches, asked, request, terms))
    swept.skipped.extend({**subject.changed, "ctx": context, "why": why} for context, why in whys.items() if held)


def _why_not(context: int, request: Request, pieces: int) -> str | None:
    """Reason why a context is none of a step; None if it is one."""
    if context < (request.tokens or 1):
        return f"fewer than {request.tokens:,} new tokens"
    return f"{pieces:,} pieces do not divide {context:,} tokens" if context % pieces else None


def _evaluated(
    subject: LoadedModel,
    contexts: Collection[int],
    batches: Collection[int],
    asked: Sequence[Metric],
    request: Request,
    terms: Counting,
) -> Iterator[dict[str, Any]]:
    """One model's metrics at every context and batch."""
    smallest = counting.workload(subject, at(request, min(contexts), 1))
    points = terms.points(subject, smallest, asked)
    point = points[0]
    chunk = smallest.tokens if request.decode or request.tokens is not None else None
    arrays = len(contexts) * len(batches) >= MANY and not any(metric.of_step for metric in asked)
    arrays &= terms.mesh is None  # whose ledger is that of one rank
    if arrays and find_spec("numpy") is not None:
        values = _through_arrays(subject, point, contexts, batches, chunk, asked)
    else:
        values = (
            tuple(max(metric.of(there) for there in every) for metric in asked)
            for every in (
                [moved(one, context=context, tokens=chunk or context, batch=batch) for one in points]
                for context, batch in product(contexts, batches)
            )
        )
    for (context, batch), found in zip(product(contexts, batches), values, strict=True):
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
