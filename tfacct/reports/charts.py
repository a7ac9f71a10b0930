"""Pictures of reports, from the same metrics and facts as the tables. Imported only for pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tfacct.accounts.memory import cache_bytes
from tfacct.accounts.metrics import Point, attention_overtakes, metric, moved
from tfacct.accounts.products import by_part
from tfacct.architecture.parts import headings, mixers
from tfacct.base import units
from tfacct.base.errors import UsageError, joined
from tfacct.base.spelling import option, spelled
from tfacct.ledger.lines import WINDOW
from tfacct.ledger.paths import ENCODER, PROJECTIONS, SCORES
from tfacct.ledger.storage import Width, width
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.memory_limit import usable_words
from tfacct.loading.model import LoadedModel
from tfacct.output import look
from tfacct.output.chart import Chart
from tfacct.output.report import Kind, Report
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rank_memory import is_latent, variants
from tfacct.parallel.shard_model import shard_for_flops
from tfacct.parallel.support import supported_on
from tfacct.reports import build, model_notes
from tfacct.reports.memory import heads_words
from tfacct.reports.sweep import label, setting

if TYPE_CHECKING:
    pass

STEPS = 8
"""Points an octave: a smooth line."""
WIDEST = 8
"""Least ratio of the crossover to the first value of the axis, and of the last value to the crossover."""
FIRST = 64
"""The axis begins here, unless the crossover or the given context is smaller."""
POINTS = 128
"""Steps along a linear axis."""
PAST = 1.15
"""The end of the axis, relative to the largest context that fits."""
BEFORE = 64
"""Ratio of the end of a logarithmic axis to its first value, which is at most 1,024."""
CONTEXT = "context (tokens)"
MOST_LINES = 20
"""Most lines in a picture: so many dashes and markers differ, and so many names fit next to it."""
MOST_PANELS = 4
Y_LABELS: Mapping[str, str] = {
    "flops": "FLOPs",
    "bytes": "bytes",
    "params": "parameters",
    "share": "share of all FLOPs",
}
HUES = {
    **{SCORES: look.VERMILION, PROJECTIONS: look.ORANGE, "attn": look.ORANGE, "cross": look.YELLOW, "mlp": look.BLUE},
    **{"lm_head": look.GREEN, "embed": look.SKY, ENCODER: look.PURPLE},
}
"""Colours of parts and components, the same in every picture; `_hue_of` has the others."""
METRIC_WORDS = {
    "flops_per_token": "FLOPs per token",
    "total_params": "parameters",
    "total_bytes": "weights + KV cache",
    "total_read_bytes": "bytes read",
    "total_written_bytes": "bytes written",
    "flops_per_byte": "FLOPs per byte",
    "kv_bytes_per_token": "bytes per token (first)",
    "kv_bytes_next_token": "bytes per token (next)",
}
"""Full labels of metrics; tables have shorter ones."""
KNOBS = {"ctx": "the context", "batch": "the batch"}
X_LABELS = {"ctx": CONTEXT, "batch": "batch (sequences)"}
OTHERS = "everything else"
MEMORY = {
    "weights": ("weights_bytes", look.BLUE),
    "optimizer state": ("optimizer_bytes", look.SKY),
    "gradients": ("gradients_bytes", look.GREEN),
    "gathered parameters": ("gathered_bytes", look.PURPLE),
    "saved": ("saved_bytes", look.ORANGE),
    "temporary": ("temporary_bytes", look.VERMILION),
}
"""What fills a phase → its key, and its colour."""


def of_one_rank(
    draw: Callable[[Sequence[LoadedModel]], Chart],
    models: Sequence[LoadedModel],
    mesh: Mesh | None,
    what: str,
    shard: Callable[[LoadedModel, Mesh], LoadedModel] = shard_for_flops,
) -> Chart:
    """The chart of `what` that `draw` makes of models, or of one rank of each. Raises UsageError for a rank with other
    tokens or layers than its model."""
    for axis in ("pp", "cp", "fsdp"):
        if getattr(mesh or Mesh(), axis) > 1:
            raise UsageError(f"a chart of {what} does not support {option(axis)}", "leave it out")
    return draw(models if mesh is None else supported_on(models, lambda model: shard(model, mesh))[1])


def _about(report: Report, *more: str) -> dict[str, Any]:
    """Title and caption of a picture, those of its report: title, answer, what was counted, and `more`."""
    counted = [f"Counted: {report.convention}."] if report.convention else []
    return {"title": report.title, "caption": " ".join([report.answer, *counted, *more])}


def flops_chart(
    models: Sequence[LoadedModel], request: Request, report: Report, *, masked: bool = False, train: bool = False
) -> Chart:
    """Of one model the shares of its components against the context; of several their components side by side."""
    models = _in_report(models, report)
    if len(models) == 1:
        return _shares_by_context(models[0], request, report, masked, train)
    parts = _stacked(dict.fromkeys(part for facts in report.models for part in facts["components"]))
    bars = {}
    for part, hue in zip(parts, _hues(parts), strict=True):
        shares = [facts["components"].get(part, 0) / facts["total_flops"] for facts in report.models]
        bars[_label_of(part)] = shares, hue
    return _bars(models, "share", bars, report)


def _shares_by_context(model: LoadedModel, request: Request, report: Report, masked: bool, train: bool) -> Chart:
    work = selection.workload(model, request)
    chunk = request.new is not None
    point = Point(model.ledger, work, masked=masked, train=train)
    crossover = attention_overtakes(point, chunk=chunk)
    smallest = work.tokens if chunk else 1
    last = max(work.context, model.context, WIDEST * (crossover or 1), 2 * smallest)
    contexts = _octaves(max(smallest, min(FIRST, work.context, (crossover or FIRST) // WIDEST)), last)
    places = [moved(point, context=n) if chunk else moved(point, context=n, tokens=n) for n in contexts]
    components = _stacked(report.models[0]["components"])
    shares = {name: metric(f"share.{name}", [model.ledger]) for name in components}
    # Ahead from the start: nothing is crossed.
    crossed = [] if crossover is None or crossover <= contexts[0] else [(crossover, f"half from {crossover:,}")]
    return Chart(
        kind="areas",
        x_label=CONTEXT,
        y_label=Y_LABELS["share"],
        x=contexts,
        series={_label_of(name): [float(share.of(place)) for place in places] for name, share in shares.items()},
        unit="share",
        hues=_hues(components),
        marks=[*crossed, _context_mark(work.context)],
        **_about(report, *(note for note in report.notes if getattr(note, "key", "") == "attention_overtakes")),
    )


def params_chart(models: Sequence[LoadedModel], report: Report) -> Chart:
    """Stored parameters by part, a row for each model."""
    models = _in_report(models, report)
    rows = [_by_part(model.ledger.parameters()) for model in models]
    parts = [part for part in (*headings(), OTHERS) if any(part in row for row in rows)]
    bars = {_label_of(part): ([row.get(part, 0) for row in rows], _hue_of(part)) for part in parts}
    ends = [units.people(facts["total_params"]) for facts in report.models]
    return _bars(models, "params", bars, report, ends)


def memory_chart(models: Sequence[LoadedModel], request: Request, report: Report) -> Chart:
    """Weights and KV cache: of one model against the context, of several in bars; with the memory budget, if given."""
    facts = report.models
    fit = facts[0].get("fit")
    budget = [(fit["budget_bytes"], usable_words(fit))] if fit else []
    models = _in_report(models, report)
    if len(facts) == 1:
        return _by_context(models[0], request, report, budget)
    bars = {"weights": ([each["weights_bytes"] for each in facts], look.BLUE)}
    if caching := [model for model in models if model.has_cache]:
        bars[model_notes.cache_name(caching)] = [each["kv_cache_bytes"] for each in facts], look.ORANGE
    ends = [units.binary(each["total_bytes"]) for each in facts]
    return _bars(models, "bytes", bars, report, ends, budget)


def _by_context(model: LoadedModel, request: Request, report: Report, budget: list[tuple[int, str]]) -> Chart:
    (facts,) = report.models
    work = selection.workload(model, request)
    cached = _cache_format(model, facts["kv_dtype"], facts["kv_block"])
    fits = facts["fit"]["largest_context"] if budget else None
    last = max(work.context, model.context, int(PAST * (fits or 0)))
    contexts = _with_windows([last * step // POINTS for step in range(POINTS + 1)], model)
    series = {"weights": [facts["weights_bytes"]] * len(contexts)}
    if model.has_cache:
        series[model.cache_name] = [
            cache_bytes(model.ledger, replace(work, context=n).axes(), cached) for n in contexts
        ]
    return Chart(
        kind="areas",
        x_label=CONTEXT,
        y_label=Y_LABELS["bytes"],
        x=contexts,
        series=series,
        unit="bytes",
        hues=[look.BLUE, look.ORANGE][: len(series)],
        marks=[_context_mark(work.context), *([(fits, f"fits up to {fits:,}")] if fits else [])],
        levels=budget,
        **_about(report),
    )


def kv_chart(models: Sequence[LoadedModel], request: Request, report: Report) -> Chart:
    """KV cache against the context: of one model as built, as MHA and as MQA; of several as they are built.

    Raises UsageError for more models than a picture can distinguish.
    """
    models = _in_report(models, report)
    _check_lines(len(models), "name fewer models")
    cached = width(report.models[0]["workload"]["dtype"])
    works = [selection.workload(model, request) for model in models]
    reached = [*(work.context for work in works), *(model.context for model in models)]
    last = max(2, *reached)
    contexts = _octaves(max(1, min(1024, last // BEFORE, min(reached) // 4)), last)
    for model in models:
        contexts = _with_windows(contexts, model)
    lines: dict[str, list[int]] = {}
    names = [build.label(model) for model in models]
    hues = []
    for number, (model, work) in enumerate(zip(models, works, strict=True)):
        line = names[number] if names.count(names[number]) == 1 else f"{names[number]} ({number + 1})"
        paged = _cache_format(model, cached.name, report.models[number]["kv_block"])
        alone = len(models) == 1 and paged.state_page is None  # with other heads, these pages would have other sizes
        for name, hue, ledger in _named_variants(model) if alone else [(line, number, model.ledger)]:
            lines[name] = [cache_bytes(ledger, replace(work, context=n).axes(), paged) for n in contexts]
            hues.append(hue)
    cache = model_notes.cache_name(models)
    return Chart(
        kind="lines",
        x_label=CONTEXT,
        y_label=f"{cache} ({Y_LABELS['bytes']})",
        x=contexts,
        series=lines,
        unit="bytes",
        hues=hues,
        marks=[_context_mark(works[0].context)] if len({work.context for work in works}) == 1 else [],
        **_about(report),
    )


def _cache_format(model: LoadedModel, dtype: str, page: int | None) -> Width:
    """The format of a cache with pages of so many tokens; without pages if `page` is None."""
    if page is None:
        return width(dtype)
    from tfacct.engines.pages import aligned

    return aligned(model, width(dtype, page))


def _named_variants(model: LoadedModel) -> list[tuple[str, int, Any]]:
    """As MHA, as built, as MQA, by the key/value heads of each; those that differ from the model as built."""
    sides = variants(model)
    if sides["mha"] is None:  # no attention, or keys of one head that are values too
        return [(model.cache_name, look.BLUE, model.ledger)]
    parts = model.architecture.attentions
    queries, heads = {part.heads for part in parts}, {part.kv_heads for part in parts}
    built = "latent" if is_latent(model) else heads_words(sorted(heads))
    named = [(f"as built ({built})", look.BLUE, sides["as_built"])]
    if is_latent(model) or any(part.kv_heads != part.heads for part in parts):
        named.insert(0, (f"MHA ({heads_words(sorted(queries))})", look.ORANGE, sides["mha"]))
    if not is_latent(model) and heads != {1}:
        named.append((f"MQA ({heads_words(1)})", look.GREEN, sides["mqa"]))
    return named


def _with_windows(contexts: list[int], model: LoadedModel) -> list[int]:
    """The contexts, and those at which a window is full: lines bend there."""
    windows = {group.axes[WINDOW] for group in model.ledger.groups if WINDOW in group.axes}
    return sorted({*contexts, *(n for n in windows if contexts[0] < n < contexts[-1])})


def train_chart(models: Sequence[LoadedModel], report: Report) -> Chart:
    """Phases of one model's step, or the peaks of several models', with the memory budget, if given."""
    facts, named = report.models, {model.name: build.label(model) for model in models}
    if len(facts) == 1:
        rows, names = facts[0]["phases"], [each["phase"] for each in facts[0]["phases"]]
    else:
        rows = [next(row for row in each["phases"] if row["phase"] == each["peak_phase"]) for each in facts]
        names = [named[each["model"]] for each in facts]
    parts = {name: ([row[key] for row in rows], hue) for name, (key, hue) in MEMORY.items()}
    bars = {name: (values, hue) for name, (values, hue) in parts.items() if any(values)}
    fit = facts[0].get("fit")
    budget = [(fit["budget_bytes"], usable_words(fit))] if fit else []
    return _bars(names, "bytes", bars, report, [units.binary(row["total_bytes"]) for row in rows], budget)


def sweep_chart(report: Report, drawn: Sequence[str] | None = None) -> Chart:
    """Metrics of a sweep, all or those in `drawn`, against its context, or against its first knob if the context is
    fixed; a panel for each metric, and a line for each combination of the other knobs."""
    facts = report.models[0]
    knobs, metrics = facts["swept"], drawn or facts["metrics"]
    numeric = [knob for knob in knobs if {type(line[knob]) for line in facts["lines"]} == {int}]
    if not numeric:
        raise UsageError(
            f"nothing to plot against: {', '.join(knobs)} are not numbers",
            f"sweep {option('ctx')}, {option('batch')} or a size",
        )
    across = "ctx" if "ctx" in numeric else numeric[0]
    if len(metrics) > MOST_PANELS:
        raise UsageError(f"{len(metrics)} metrics are too many for a picture; the maximum is {MOST_PANELS}")
    first, *others = [_panel(report, name, across) for name in metrics]
    names = dict.fromkeys(model["model"] for model in report.models)
    who = f" of {next(iter(names))}" if len(names) == 1 else ""
    apart = [knob for knob in knobs if knob != across]
    what = joined([_drawn_label(report, name) for name in metrics])
    title = f"{what[0].upper()}{what[1:]}{who} against {KNOBS.get(across, across)}"
    return replace(
        first,
        title=title + (f", for each {' and '.join(apart)}" if apart else ""),
        caption=f"{report.title}. Counted: {report.convention}.",
        side_charts=others,
    )


def curve(contexts: Collection[int]) -> list[int]:
    """The contexts, and others between them, so that the lines of a picture are smooth."""
    return sorted({*contexts, *_octaves(min(contexts), max(contexts))})


def _panel(report: Report, drawn: str, across: str) -> Chart:
    """Lines of one metric of a sweep."""
    series: dict[str, dict[int, float]] = {}
    for model in report.models:
        for line in model["lines"]:
            others = ", ".join(setting(knob, line[knob]) for knob in report.models[0]["swept"] if knob != across)
            name = others or _drawn_label(report, drawn)
            series.setdefault(name, {})[line[across]] = float(line[drawn])
    _check_lines(len(series), "sweep fewer values")
    x = sorted({place for values in series.values() for place in values})
    if len(x) < 2:
        hint = f"sweep a range: {spelled('--ctx 1k..128k', 'ctx=[1024, 131072]')}"
        raise UsageError(f"{across} has one value: nothing to plot against", hint)
    unit, words = next(column.kind for column in report.columns if column.key == drawn), _drawn_label(report, drawn)
    named = unit in ("share", "ratio") or Y_LABELS[unit] in words
    return Chart(
        kind="lines",
        title="",
        caption="",
        x_label=X_LABELS.get(across, across),
        y_label=words if named else f"{words} ({Y_LABELS[unit]})",
        x=x,
        series={name: [values.get(place, float("nan")) for place in x] for name, values in series.items()},
        unit=unit,
    )


def _drawn_label(report: Report, name: str) -> str:
    """The full name of a drawn metric."""
    kind, _, of = name.partition(".")
    if of:
        return f"FLOPs of {_label_of(of)}" if kind == "flops" else f"share of {_label_of(of)} in all FLOPs"
    return METRIC_WORDS.get(name) or label(name, train=report.models[0]["train"])


def _bars(
    rows: Iterable[LoadedModel | str],
    unit: Kind,
    parts: Mapping[str, tuple[Sequence[float], int]],
    report: Report,
    ends: Iterable[str] = (),
    levels: Sequence[tuple[int, str]] = (),
) -> Chart:
    """Stacked bars, a row for each model or name. `parts`: values in all rows, and the colour. `ends`: a text for each
    row."""
    return Chart(
        kind="bars",
        x_label=Y_LABELS[unit],
        y_label="",
        x=[row if isinstance(row, str) else build.label(row) for row in rows],
        series={name: values for name, (values, _) in parts.items()},
        unit=unit,
        hues=[hue for _, hue in parts.values()],
        ends=list(ends),
        levels=levels,
        **_about(report),
    )


def _check_lines(count: int, hint: str) -> None:
    """Raises UsageError for more lines than a picture can distinguish."""
    if count > MOST_LINES:
        raise UsageError(f"{count} lines are too many for a picture; the maximum is {MOST_LINES}", hint)


def _in_report(models: Sequence[LoadedModel], report: Report) -> list[LoadedModel]:
    """The models in the report."""
    left_out = {model["model"] for model in report.models_skipped}
    return [model for model in models if model.name not in left_out]


def _components() -> tuple[str, ...]:
    """All components from the bottom up: the upper edge of the first is its share."""
    return (SCORES, PROJECTIONS, *(name for name in headings() if name != ENCODER), ENCODER)


def _hue_of(part: str, mixer: int = look.VERMILION) -> int:
    """Colour of a part or component, `mixer` of one in place of attention; grey of others."""
    return HUES.get(part, mixer if part in mixers() else look.GREY)


def _hues(components: Sequence[str]) -> list[int]:
    mixer = look.SKY if SCORES in components else look.VERMILION
    return [_hue_of(name, mixer) for name in components]


def _stacked(parts: Iterable[str]) -> list[str]:
    """Components from the bottom up."""
    return sorted(parts, key=_components().index)


def _label_of(component: str) -> str:
    return {"attn_projections": "attention projections", "lm_head": "head"}.get(component) or build.COMPONENTS.get(
        component, component
    )


def _by_part(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by part; those without a colour of their own, positions and norms among them, as one."""
    found: dict[str, int] = {}
    for part, count in by_part(counts).items():
        name = part if _hue_of(part) != look.GREY else OTHERS
        found[name] = found.get(name, 0) + count
    return found


def _context_mark(context: int) -> tuple[int, str]:
    """Mark at the given context."""
    return context, f"context {context:,}"


def _octaves(first: int, last: int) -> list[int]:
    """Whole numbers from `first` to `last`, evenly on a log axis."""
    places, place = [first], first
    while place < last:
        octave = [round(place * 2 ** (step / STEPS)) for step in range(1, STEPS + 1)]
        places += octave
        place = octave[-1]
    shown = [n for n in places if n < last] + [last]
    return [shown[0], *(b for a, b in pairwise(shown) if b > a)]
