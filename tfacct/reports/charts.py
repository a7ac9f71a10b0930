"""What the pictures of FLOPs and of sweeps show, read off the same metrics as the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tfacct.accounts.metrics import Point, attention_overtakes, metric, moved
from tfacct.architecture.parts import headings, mixers
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.paths import ENCODER, PROJECTIONS, SCORES
from tfacct.ledger.workload import Request, new_tokens
from tfacct.loading.model import LoadedModel
from tfacct.output import look
from tfacct.output.chart import Chart
from tfacct.output.report import Kind, Report
from tfacct.reports import cells, compose, conventions, counting
from tfacct.reports.sweep import label

STEPS = 8
"""Points an octave: a smooth line."""
WIDEST = 8
"""The axis begins and ends at least so many times before and past the crossover."""
FIRST = 64
"""The axis begins here, unless the crossover or the context asked for is smaller."""
HUES = {
    **{SCORES: look.VERMILION, PROJECTIONS: look.ORANGE, "attn": look.ORANGE, "cross": look.YELLOW, "mlp": look.BLUE},
    **{"lm_head": look.GREEN, "embed": look.SKY, ENCODER: look.PURPLE},
}
"""Colours of parts and components, the same in every picture; see `hue_of` for others."""
TOLD_APART = 20
"""Lines that differ in dash and marker, and whose names fit beside the picture."""
Y_LABELS: Mapping[str, str] = {
    "flops": "FLOPs",
    "bytes": "bytes",
    "params": "parameters",
    "share": "share of all FLOPs",
}


def flops_chart(
    subjects: Sequence[LoadedModel], request: Request, report: Report, *, masked: bool = False, train: bool = False
) -> Chart:
    """Of one model the shares of its components against the context; of several their components side by side."""
    subjects = counted(subjects, report)
    if len(subjects) == 1:
        return _shares_by_context(subjects[0], request, report, masked, train)
    parts = list(dict.fromkeys(part for facts in report.models for part in facts["components"]))
    pairs = _stacked(parts)
    return Chart(
        kind="bars",
        title=f"Where the {'training-step ' if train else ''}FLOPs of {len(subjects)} models go",
        caption=" ".join(
            [
                f"{_upper(compose.workload_words(subjects, request))}.",
                conventions.products_note(request, masked, subjects),
            ]
        ),
        x_label=Y_LABELS["share"],
        y_label="",
        x=[compose.name_of(subject) for subject in subjects],
        series={
            label_of(part): [facts["components"].get(part, 0) / facts["total_flops"] for facts in report.models]
            for part in pairs
        },
        unit="share",
        hues=_hues(pairs),
    )


def all_components() -> tuple[str, ...]:
    """All components from the bottom up: the upper edge of the first is its share."""
    return (SCORES, PROJECTIONS, *(name for name in headings() if name != ENCODER), ENCODER)


def hue_of(part: str, mixer: int = look.VERMILION) -> int:
    """Colour of a part or component, `mixer` of one in place of attention; grey of others."""
    return HUES.get(part, mixer if part in mixers() else look.GREY)


def counted(subjects: Sequence[LoadedModel], report: Report) -> list[LoadedModel]:
    """The models that the report does not go without."""
    left_out = {model["model"] for model in report.models_left_out}
    return [subject for subject in subjects if subject.name not in left_out]


def _stacked(parts: Iterable[str]) -> list[str]:
    """Components from the bottom up."""
    return sorted(parts, key=all_components().index)


def _hues(components: Sequence[str]) -> list[int]:
    mixer = look.SKY if SCORES in components else look.VERMILION
    return [hue_of(name, mixer) for name in components]


def _shares_by_context(subject: LoadedModel, request: Request, report: Report, masked: bool, train: bool) -> Chart:
    work = counting.workload(subject, request)
    chunk = request.decode or request.tokens is not None
    point = Point(subject.ledger, work, masked=masked, train=train)
    crossover = attention_overtakes(point, chunk=chunk)
    smallest = work.tokens if chunk else 1
    last = max(work.context, subject.context, WIDEST * (crossover or 1), 2 * smallest)
    contexts = octaves(max(smallest, min(FIRST, work.context, (crossover or FIRST) // WIDEST)), last)
    places = [moved(point, context=n) if chunk else moved(point, context=n, tokens=n) for n in contexts]
    components = _stacked(report.models[0]["components"])
    shares = {name: metric(f"share.{name}", [subject.ledger]) for name in components}
    new = f", {new_tokens(work.tokens)}" if chunk else ""
    source = f", source {work.source:,}" if work.source else ""
    said = conventions.products_note(request, masked, [subject])
    name = compose.name_of(subject)
    # Ahead from the start: nothing is crossed.
    crossed = [] if crossover is None or crossover <= contexts[0] else [(crossover, f"half from {crossover:,}")]
    return Chart(
        kind="areas",
        title=f"From {crossover:,} tokens of context on, scores + values are over half of the FLOPs of {name}"
        if crossed
        else f"Where the FLOPs of {name} go as the context grows",
        caption=f"{'Training step' if train else 'Forward pass'}{new}{source}, batch {work.batch:,}. {said}",
        x_label="context (tokens)",
        y_label=Y_LABELS["share"],
        x=contexts,
        series={label_of(name): [float(share.of(place)) for place in places] for name, share in shares.items()},
        unit="share",
        hues=_hues(components),
        marks=[*crossed, asked_mark(work.context)],
    )


def asked_mark(context: int) -> tuple[int, str]:
    """The context that was asked about, to be marked."""
    return context, f"context {context:,}"


def sweep_chart(report: Report) -> Chart:
    """The last metric of a sweep against its context, or against its first knob where that stays; a line for each
    combination of the others."""
    facts = report.models[0]
    knobs: list[str] = facts["swept"]
    drawn = metric_of(report)
    numeric = [knob for knob in knobs if knob != "model" and all(_is_number(line[knob]) for line in facts["lines"])]
    if not numeric:
        raise UsageError(
            f"no knob to draw against: {', '.join(knobs)} are no numbers",
            f"sweep {option('ctx')}, {option('batch')} or a size",
        )
    across = "ctx" if "ctx" in numeric else numeric[0]
    series: dict[str, dict[int, float]] = {}
    names = [model["model"] for model in report.models]
    for number, model in enumerate(report.models, 1):
        twin = f" ({number})" if names.count(model["model"]) > 1 else ""
        for line in model["lines"]:
            others = ", ".join(_setting(knob, line[knob]) for knob in knobs if knob != across)
            name = f"{others}{twin}" or _drawn_label(report)
            series.setdefault(name, {})[line[across]] = float(line[drawn])
    if len(series) > TOLD_APART:
        raise UsageError(f"{len(series)} lines cannot be told apart: at most {TOLD_APART}", "sweep fewer values")
    x = sorted({place for values in series.values() for place in values})
    if len(x) < 2:
        hint = f"sweep a range: {spelled('--ctx 1k..128k', 'ctx=[1024, 131072]')}"
        raise UsageError(f"{across} has one value: nothing to draw against", hint)
    return Chart(
        kind="lines",
        title=_sweep_title(report, across, [knob for knob in knobs if knob != across]),
        caption=" ".join([f"{report.title}.", *report.details]),
        x_label="context (tokens)" if across == "ctx" else "batch (sequences)" if across == "batch" else across,
        y_label=_y_label(report, drawn),
        x=x,
        series={name: [values.get(place, float("nan")) for place in x] for name, values in series.items()},
        unit=_unit(report, drawn),
    )


def _sweep_title(report: Report, across: str, others: Sequence[str]) -> str:
    """What is drawn, of whom, against what, and what tells the lines apart."""
    names = dict.fromkeys(model["model"] for model in report.models)
    who = f" of {next(iter(names))}" if len(names) == 1 else ""
    apart = f", for each {' and '.join(others)}" if others else ""
    return f"{_upper(_drawn_label(report))}{who} against {KNOBS.get(across, across)}{apart}"


SPELLED = {
    "flops_per_token": "FLOPs per token",
    "total_params": "parameters",
    "total_bytes": "weights + KV cache",
    "total_read_bytes": "bytes read",
    "total_written_bytes": "bytes written",
    "flops_per_byte": "FLOPs per byte",
    "kv_bytes_per_token": "bytes of the first token",
    "kv_bytes_next_token": "bytes of the next token",
}
"""Metrics whose label in a table is cut short."""
KNOBS = {"ctx": "the context", "batch": "the batch"}


def _y_label(report: Report, drawn: str) -> str:
    unit, name = _unit(report, drawn), _drawn_label(report)
    if unit == "ratio" or (unit != "share" and Y_LABELS[unit] in name):
        return name
    return Y_LABELS[unit] if unit == "share" else f"{name} ({Y_LABELS[unit]})"


def metric_of(report: Report) -> str:
    """The metric that a sweep draws."""
    name: str = report.models[0]["metrics"][-1]
    return name


def _drawn_label(report: Report) -> str:
    """What the metric that is drawn is called where there is room for words."""
    name = metric_of(report)
    kind, _, of = name.partition(".")
    if of:
        return f"FLOPs of {of}" if kind == "flops" else f"share of {label_of(of)} in all FLOPs"
    return SPELLED.get(name) or label(name, train=report.models[0]["train"])


def _unit(report: Report, name: str) -> Kind:
    return next(column.kind for column in report.columns if column.key == name)


def _setting(knob: str, value: Any) -> str:
    return str(value) if knob == "model" else f"{knob} {compose.spoken(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def label_of(component: str) -> str:
    return {"attn_projections": "attention projections", "lm_head": "head"}.get(component) or cells.COMPONENTS.get(
        component, component
    )


def octaves(first: int, last: int) -> list[int]:
    """Return whole numbers from `first` to `last`, evenly on a log axis."""
    places, place = [first], first
    while place < last:
        octave = [round(place * 2 ** (step / STEPS)) for step in range(1, STEPS + 1)]
        places += octave
        place = octave[-1]
    kept = [n for n in places if n < last] + [last]
    return [kept[0], *(b for a, b in pairwise(kept) if b > a)]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
