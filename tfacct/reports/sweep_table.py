"""The report of a sweep: its rows, where attention overtakes the rest or between which values a metric runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

from tfacct.accounts.metrics import Metric, attention_overtakes
from tfacct.architecture.parts import mixers
from tfacct.base import units
from tfacct.base.errors import TfacctError, listed
from tfacct.base.record import record
from tfacct.ledger.workload import Request, new_tokens
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Cell, Column, Report, Row, Table
from tfacct.reports import cells, compose, conventions, counting, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.counting import Counting, LeftOut
from tfacct.reports.grid import Grid, at

NAMED = 3
"""Combinations, and reasons, that the line about those skipped names."""

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
    "saved_bytes": "saved",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "peak_bytes": "peak",
}
"""Metrics whose name in a table is shorter than their key."""


def label(name: str, *, train: bool = False) -> str:
    """What a table calls a metric."""
    if name == "ratio_to_rule_of_thumb":
        return cells.ratio_label(train)
    part = name.removeprefix("share.")
    return part if part != name and part in mixers() else LABELS.get(name, name)


@record
class Swept:
    """One model: its settings, the rows of all of them, and the combinations that cannot be, with the reasons."""

    settings: list[LoadedModel] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    refused: list[TfacctError] = field(default_factory=list)

    def skip(self, name: str, fields: Mapping[str, Any], error: TfacctError) -> None:
        """Keep in mind why a setting cannot be."""
        self.refused.append(error)
        self.skipped.append({**fields, "why": error.message.removeprefix(f"{name}: ")})


def report(
    every: Sequence[Swept],
    grid: Grid,
    asked: Sequence[Metric],
    request: Request,
    terms: Counting,
    left_out: Sequence[LeftOut],
) -> Report:
    """What was swept, as a table and as facts."""
    subjects = [swept.settings for swept in every]
    knobs, drawn = _knobs(subjects, grid), asked[-1]
    varies = len({values[drawn.name] for swept in every for values in swept.rows}) > 1
    table: Table = (
        (
            *(Column(knob, knob, "text" if knob == "model" else "amount", names_rows=True) for knob in knobs),
            *(Column(metric.name, label(metric.name, train=terms.train), metric.unit) for metric in asked),
            *((Column("bar", "", "bar", drop=2),) if varies else ()),
        ),
        tuple(tuple(_row(values, drawn) for values in swept.rows) for swept in every),
        (),
    )
    crossing = _crossing(subjects, grid, asked, request, terms)

    def notes(some: slice) -> Iterator[str]:
        yield from _skipped(every[some])
        yield from _past_positions(subjects[some], grid)
        if grid.ranks:
            from tfacct.reports.ranks import on_the_way

            yield f"Each row counts one rank{', the one that has most' if 'pp' in grid.ranks else ''}."
            if grid.sp:
                yield "With more than one rank of tp the stream's tokens are divided among them too (sp)."
            yield from on_the_way(" ".join(metric.name for metric in asked), *grid.ranks)
        settings = [subject for swept in every[some] for subject in swept.settings]
        yield from conventions.of_models(settings, asked, terms)
        if len(every[some]) == 1:
            yield from conventions.of_windows(settings, asked, masked=terms.masked)
        yield from _forms(subjects[some], grid, asked, request, terms)

    def details(some: slice) -> list[str]:
        settings = [subject for swept in every[some] for subject in swept.settings]
        return conventions.counted_at_length(settings, asked, terms, request)

    settings = [subject for one in subjects for subject in one]
    return compose.report(
        "sweep",
        [replace(one[0], defaulted=compose.shared_defaults(one), changed={}) for one in subjects],
        table,
        [
            {
                "set": {name: values[0] for name, values in grid.knobs.items() if len(values) == 1},
                "swept": knobs,
                "metrics": [metric.name for metric in asked],
                **terms.facts(
                    swept.settings[0],
                    counting.workload(_longest(swept.settings), at(request, *grid.corner)),
                    counting.stored_name(swept.settings, terms.dtype),
                ),
                **terms.recipe_facts(asked),
                "lines": swept.rows,
                "skipped": swept.skipped,
            }
            for swept in every
        ],
        title=_title(subjects, knobs, every[0].rows[0], request)
        + conventions.assumed([settings[0] for settings in subjects], asked, terms),
        convention=conventions.convention(asked),
        answer=crossing or _range([values for swept in every for values in swept.rows], asked[0], knobs),
        notes=notes,
        counted=conventions.counted(settings, asked, terms, request),
        details=details,
        requests=[at(request, max(grid.contexts) if grid.contexts else None, 1)],
        settings=subjects,
        left_out=left_out,
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
    held = [context for context in grid.contexts or () if context >= (request.tokens or 1)]
    ends = [min(held), max(held)] if held else [None]
    every = [subject for settings in subjects for subject in settings if latent.form(subject) is not None]
    steps = [(subject, counting.workload(subject, at(request, end, 1))) for subject in every for end in ends]
    return latent.notes(steps, asked, masked=terms.masked)


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
) -> str:
    """Where attention overtakes the rest, in a sweep of one model over contexts that shows its share."""
    shown = any(metric.name == "share.attn_scores_values" for metric in asked)
    if grid.ranks or len(subjects) > 1 or len(subjects[0]) > 1 or "ctx" not in grid.varied or not shown:
        return ""
    work = counting.workload(subjects[0][0], at(request, *grid.corner))
    chunk = request.decode or request.tokens is not None
    (subject,) = subjects[0]
    return "".join(sentences.overtaken(subject, attention_overtakes(terms.point(subject, work), chunk=chunk)))


def _range(rows: Sequence[Mapping[str, Any]], asked: Metric, knobs: Sequence[str]) -> str:
    """Between which values a metric runs, and where it has them."""
    name, column = asked.name, Column(asked.name, "", asked.unit)
    least, most = (side(rows, key=lambda values: values[name]) for side in (min, max))
    if least[name] == most[name]:
        return f"{name} is {column.text(least[name])}{' throughout' if len(rows) > 1 else ''}."

    def said(values: Mapping[str, Any]) -> str:
        where = (
            str(values[knob]) if knob == "model" else f"{knob} {compose.spoken(values[knob])}"
            for knob in knobs
            if knob in values
        )
        return f"{column.text(values[name])} at {', '.join(where)}"

    return f"{name} runs from {said(least)} to {said(most)}."


def _past_positions(subjects: Sequence[Sequence[LoadedModel]], grid: Grid) -> list[str]:
    """Which rows are past the end of a position embedding."""
    limits: dict[str, set[int]] = {}
    for one in (subject for settings in subjects for subject in settings):
        if one.past_words(max(grid.contexts or [0])):
            limits.setdefault(one.name, set()).add(one.position_limit or 0)
    if not limits:
        return []
    named = ", ".join(f"{name}: {units.between(ends)} positions" for name, ends in limits.items())
    return [f"Rows past the end of a position embedding count steps that cannot run ({named})."]


def _skipped(every: Sequence[Swept]) -> list[str]:
    """Which combinations cannot be, and why."""
    reasons: dict[str, list[str]] = {}
    for swept in every:
        for one in swept.skipped:
            fields = ", ".join(f"{name} {compose.spoken(value)}" for name, value in one.items() if name != "why")
            who = f"{swept.settings[0].name} with " if len(every) > 1 else ""
            reasons.setdefault(one["why"], []).append(f"{who}{fields}")
    said = [f"{listed(settings, NAMED)} ({why})" for why, settings in list(reasons.items())[:NAMED]]
    more = sum(map(len, list(reasons.values())[NAMED:]))
    return [f"Skipped as impossible: {'; '.join(said)}{f'; {more:,} more' if more else ''}."] if said else []
