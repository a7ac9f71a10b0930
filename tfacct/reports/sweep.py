"""`sweep`: metrics of every combination of contexts, batches, config fields and parallel layouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from math import prod
from operator import index
from typing import Any, TypeAlias

from tfacct.accounts.metrics import Metric, Point, moved
from tfacct.algebra.arrays import evaluate
from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed
from tfacct.base.ranges import FOR_MORE, MOST, Values, limited
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, check_size
from tfacct.loading import selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.output.report import Cell, Column, Row, Table
from tfacct.parallel.mesh import mesh_of, ranks_of
from tfacct.reports import build, model_notes
from tfacct.reports.metrics import CountedMetrics, Counting, MetricsReport, RecipeReport, metrics_named, named_of
from tfacct.reports.ranks import fitting_words, in_devices, peak_notes

DEFAULT = ("total_flops", "flops_per_token", "ratio_to_rule_of_thumb", "share.attn_scores_values")
CACHE = "kv_cache_bytes"
"""The metric that is added to these if a field changes it."""
MANY = 1000
"""Points from which on arrays are worth the import of numpy, if it is installed."""
NAMED = 3
"""Combinations and reasons that a sentence names."""
LABELS = {
    "total_flops": "FLOPs",
    "flops": "FLOPs",
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
    "saved_bytes": "saved",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "peak_bytes": "peak",
}
"""Metrics whose name in a table is shorter than their key."""


SweepLine: TypeAlias = dict[str, Any]
"""One combination: values of options and fields, and metrics, by name."""


class SweepReport(MetricsReport):
    """Metrics at every combination of values."""

    _line = SweepLine

    swept: list[str]
    skipped: list[dict[str, Any]]
    metrics: list[str]


@record
class Grid:
    """The values of everything that is swept. `contexts`: None for each model's longest. `zipped`: fields that vary
    together. `ranks`: numbers of ranks, by mesh axis; `sp`: with sequence parallelism. `recipe`: values of fields of
    the training recipe."""

    contexts: Collection[int] | None = None
    batches: Collection[int] = (1,)
    fields: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    zipped: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ranks: Mapping[str, Collection[int]] = field(default_factory=dict)
    sp: bool = False
    recipe: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def knobs(self) -> dict[str, Sequence[Any]]:
        """Values of fields and of mesh axes, by name."""
        return {**self.alone, **self.zipped}

    @property
    def alone(self) -> dict[str, Sequence[Any]]:
        """Values that vary alone, not zipped."""
        ranks = {axis: list(sizes) for axis, sizes in self.ranks.items()}
        return {**self.fields, **ranks, **self.recipe}

    def size(self, models: int) -> int:
        """Number of combinations."""
        fields = prod(len(values) for values in self.alone.values())
        together = max(map(len, self.zipped.values()), default=1)
        return models * fields * together * (1 if self.contexts is None else len(self.contexts)) * len(self.batches)

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination of fields."""
        rows = list(zip(*self.zipped.values(), strict=True)) or [()]
        for values in product(*self.alone.values(), rows):
            yield dict(zip(self.knobs, (*values[:-1], *values[-1]), strict=True))

    @property
    def varied(self) -> list[str]:
        """Names with more than one value."""
        knobs = {name: len(values) for name, values in self.knobs.items()}
        knobs |= {"ctx": len(self.contexts or ()), "batch": len(self.batches)}
        return [name for name, values in knobs.items() if values > 1]

    @property
    def corner(self) -> tuple[int | None, int]:
        """The largest context and batch: the `workload` of the JSON."""
        return (max(self.contexts) if self.contexts else None), max(self.batches)


@record
class Swept:
    """One model: its settings, their rows, and the skipped combinations with the reasons."""

    settings: list[LoadedModel] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    errors: list[TfacctError] = field(default_factory=list)

    def skip(self, name: str, fields: Mapping[str, Any], error: TfacctError) -> None:
        """Skip a setting, with the reason."""
        self.errors.append(error)
        self.skipped.append({**fields, "why": error.message.removeprefix(f"{name}: ")})

    @property
    def contexts(self) -> set[int]:
        """The longest contexts of the settings."""
        return {model.context for model in self.settings}


@record
class Sweep:
    """What is swept, and the metrics of each combination. `request`: the rest of the workload. `terms`: how metrics
    are counted. `limit`: memory of each device, which the last metric fits or not. `every`: the models with rows."""

    grid: Grid
    metrics: Sequence[Metric]
    request: Request
    terms: Counting
    limit: MemoryLimit | None = None
    every: Sequence[Swept] = ()

    def at(self, context: int | None, batch: int) -> Request:
        """The workload of a context and a batch."""
        return replace(self.request, ctx=context, batch=batch)

    @property
    def counted(self) -> CountedMetrics:
        """The metrics and how they are counted."""
        return CountedMetrics(self.metrics, self.terms, recipes=bool(self.grid.recipe))

    def with_recipe(self, fields: Mapping[str, Any]) -> Counting:
        """How metrics are counted with these fields of the recipe."""
        return replace(self.terms, trained=named_of({**dict(self.terms.trained), **fields}))

    @property
    def settings(self) -> list[LoadedModel]:
        """Every model in every setting."""
        return [model for swept in self.every for model in swept.settings]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every combination."""
        return [row for swept in self.every for row in swept.rows]

    def is_tight(self, row: Mapping[str, Any]) -> bool:
        """True for a training step that fits, but not with what the CUDA allocator reserves."""
        step = self.metrics[-1]
        return bool(self.limit and row["fits"] and step.of_step and self.limit.is_tight(row[step.name]))

    @property
    def knobs(self) -> list[str]:
        """Names that tell rows apart: those that vary, and the context if settings have their own."""
        names = self.grid.varied
        if len(self.every) > 1:
            names.insert(0, "model")
        if self.grid.contexts is None and any(len(swept.contexts) > 1 for swept in self.every):
            names.append("ctx")
        return names or ["ctx"]


def checked(grid: Grid) -> Grid:
    """The grid with contexts, batches and ranks as whole numbers. Raises UsageError."""
    contexts = None if grid.contexts is None else _sizes(option("ctx"), grid.contexts)
    ranks = {axis: _sizes(option(axis), sizes) for axis, sizes in grid.ranks.items()}
    grid = replace(grid, contexts=contexts, batches=_sizes(option("batch"), grid.batches), ranks=ranks)
    knobs = {option("ctx"): grid.contexts, option("batch"): grid.batches, **grid.knobs}
    for knob, values in knobs.items():
        if values is not None and not len(values):
            raise UsageError(f"{knob} has no values")
    for name in (*grid.fields, *grid.zipped):
        if name in ("model", "ctx", "batch", *grid.ranks, *grid.recipe):
            raise UsageError(f"{name} is an option of sweep, so a field of that name cannot be swept")
    zipped = grid.zipped
    if twice := [name for name in zipped if name in grid.fields]:
        raise UsageError(f"{twice[0]} is given twice, with {option('zip')} and {option('fields')}: give it once")
    if len(set(map(len, zipped.values()))) > 1:
        counts = ", ".join(f"{name} {len(values):,}" for name, values in zipped.items())
        raise UsageError(f"{option('zip')} needs the same number of values for each field, not {counts}")
    if grid.sp and max(grid.ranks.get("tp", ()), default=1) == 1:
        raise UsageError(f"{option('sp', True)} needs several ranks of {option('tp')}: add {option('tp', '1,2,4')}")
    return grid


def _sizes(what: str, values: Collection[int]) -> Collection[int]:
    """Whole numbers of at least 1; `Values` were checked when they were read."""
    if isinstance(values, Values):
        return values
    try:
        limited(what, values)
        sizes = [index(value) for value in values]
    except TypeError:
        raise UsageError(f"{what} must be a list of whole numbers, not {values!r}") from None
    for size in sizes:
        check_size(what, size)
    return sizes


@in_devices
def sweep(
    load: Callable[[str, Mapping[str, Any]], LoadedModel],
    models: Sequence[str],
    grid: Grid,
    *,
    metrics: Sequence[str] = DEFAULT,
    request: Request | None = None,
    terms: Counting | None = None,
    limit: MemoryLimit | None = None,
) -> SweepReport:
    """The exact metrics of every combination. `load` reads a model with fields set over its config. `request`: the rest
    of the workload. `limit`: memory of each device, which the last metric fits or not. Impossible combinations are
    skipped. Raises TfacctError, also if all are impossible."""
    request, terms = request or Request(), terms or Counting()
    grid = checked(grid)
    points = grid.size(len(models))
    if points > MOST:
        raise UsageError(f"that makes {points:,} points: at most {MOST:,}", FOR_MORE)
    found = [_read(load, name, grid) for name in models]
    every = [model for swept in found for model in swept.settings]
    if not every:
        raise found[0].errors[0]
    if tuple(metrics) == DEFAULT:
        metrics = _default_metrics(found, every, grid)
    named = metrics_named(metrics, every)
    terms.check_recipe(named)
    if clash := {metric.name for metric in named} & set(grid.knobs):
        raise UsageError(f"{clash.pop()} is a metric, so it cannot be swept as a field")
    about = Sweep(grid, named, request, terms, limit)
    if swept_recipe := grid.recipe:
        for values in product(*swept_recipe.values()):
            _ = about.with_recipe(dict(zip(swept_recipe, values, strict=True))).recipe  # raises UsageError
    for swept in found:
        for model in list(swept.settings):
            try:
                _sweep(swept, model, about)
            except (ConfigError, UsageError) as error:
                swept.settings.remove(model)
                swept.skip(model.name, model.changed, error)
    answered = [swept for swept in found if swept.rows]
    if not answered:
        raise next(error for swept in found for error in swept.errors)
    others = zip(models, found, strict=True)
    left_out = [Skipped((name,), swept.skipped[0]["why"]) for name, swept in others if not swept.rows]
    return _report(replace(about, every=answered), left_out)


def _read(load: Callable[[str, Mapping[str, Any]], LoadedModel], name: str, grid: Grid) -> Swept:
    """A model in every setting that it can have."""
    swept = Swept()
    for fields in grid.settings():
        try:
            options = {name: fields.pop(name) for name in (*grid.ranks, *grid.recipe)}
            model = load(name, fields)
            swept.settings.append(replace(model, changed={**model.changed, **options}) if options else model)
        except ConfigError as error:
            swept.skip(name, fields, error)
    return swept


def _default_metrics(found: Sequence[Swept], every: Sequence[LoadedModel], grid: Grid) -> Sequence[str]:
    """FLOPs and the share of attention, or of what replaces it, and the cache if a field changes it."""
    if "pp" in grid.ranks:
        return DEFAULT[:1]  # by which stages can be compared
    metrics = list(DEFAULT)
    if not model_notes.attends(every):
        metrics[-1:] = [f"share.{mixer.name}" for mixer in model_notes.mixers(every)]
    return [*metrics, CACHE] if any(_cache_varies(swept, grid) for swept in found) else metrics


def _cache_varies(swept: Swept, grid: Grid) -> bool:
    """True if a field changes the cache of a model."""
    context = grid.corner[0]
    steps = ((model, Workload(context or model.context, 1)) for model in swept.settings)
    return len({sum(map(int, model.ledger.states(work.axes()).values())) for model, work in steps}) > 1


def _sweep(swept: Swept, model: LoadedModel, about: Sweep) -> None:
    """Add one model's metrics at every context and batch. Raises UsageError if none is possible."""
    grid, terms = about.grid, about.with_recipe({name: model.changed[name] for name in about.grid.recipe})
    if not all(selection.takes_context(model, context) for context in grid.contexts or ()):
        raise selection.other_context(model)
    if grid.ranks:
        ranks: dict[str, Any] = {axis: model.changed[axis] for axis in grid.ranks}
        terms = replace(terms, mesh=mesh_of(**ranks, sp=grid.sp and ranks["tp"] > 1))
    if about.limit is not None:
        training = about.metrics[-1].of_step
        if grid.ranks and (terms.mesh is None or not training):
            _ = about.limit.checked_for(ranks_of(terms.mesh))  # raises UsageError
        terms = terms.on(about.limit, training=training)
    contexts = [model.context] if grid.contexts is None else grid.contexts
    pieces = 1 if terms.mesh is None else terms.mesh.sequence_chunks
    whys = {context: why for context in contexts if (why := _unsupported_context(context, about.request, pieces))}
    counted = [context for context in contexts if context not in whys] if whys else contexts
    swept.rows.extend(_evaluated(model, counted or contexts, replace(about, terms=terms)))
    swept.skipped.extend({**model.changed, "ctx": context, "why": why} for context, why in whys.items() if counted)


def _unsupported_context(context: int, request: Request, pieces: int) -> str | None:
    """Why a step cannot have a context; None if it can."""
    if context < (request.tokens or 1):
        return f"fewer than {request.tokens:,} new tokens"
    return f"{pieces:,} pieces do not divide {context:,} tokens" if context % pieces else None


def _evaluated(model: LoadedModel, contexts: Collection[int], about: Sweep) -> Iterator[dict[str, Any]]:
    """One model's metrics at every context and batch."""
    metrics, batches = about.metrics, about.grid.batches
    smallest = selection.workload(model, about.at(min(contexts), 1))
    points = about.terms.points(model, smallest, metrics)
    chunk = about.request.new
    arrays = len(contexts) * len(batches) >= MANY and not any(metric.of_step for metric in metrics)
    arrays &= about.terms.mesh is None  # whose ledger is that of one rank
    if arrays and find_spec("numpy") is not None:
        knobs: dict[str, Any] = {"ctx": [[context] for context in contexts], "batch": [list(batches)]}
        knobs |= {} if chunk is None else {"tokens": chunk}
        every = [evaluate(metric, model.architecture, points[0], knobs, exact=True) for metric in metrics]
        values: Iterator[tuple[Any, ...]] = zip(*(array.ravel().tolist() for array in every), strict=True)
    else:
        values = (
            tuple(max(metric.of(there) for there in every) for metric in metrics)
            for every in (
                [moved(one, context=context, tokens=chunk or context, batch=batch) for one in points]
                for context, batch in product(contexts, batches)
            )
        )
    past = {context: model.past_positions(replace(smallest, context=context)) for context in contexts if about.limit}
    for (context, batch), found in zip(product(contexts, batches), values, strict=True):
        row = {"model": model.name, **model.changed, "ctx": context, "batch": batch}
        row |= dict(zip((metric.name for metric in metrics), found, strict=True))
        if about.limit is not None:
            row["fits"] = found[-1] <= about.limit.usable and past[context] is None
        yield row


def _report(about: Sweep, left_out: Sequence[Skipped]) -> SweepReport:
    grid, every, counted, point = about.grid, about.every, about.counted, _crossing_point(about)
    overtaken = (
        [] if point is None else model_notes.overtaken(about.settings[0], point, chunk=about.request.new is not None)
    )

    def notes(some: slice) -> Iterator[str]:
        shown = replace(about, every=every[some])
        yield from _skipped(shown.every)
        if grid.ranks or (about.limit is not None and about.limit.count > 1):
            yield f"Each number is for one rank{', the one where it is largest' if 'pp' in grid.ranks else ''}."
        if grid.ranks:
            yield from peak_notes(" ".join(metric.name for metric in about.metrics), *grid.ranks)
        if about.limit is not None:
            if about.limit.count > 1 and grid.ranks and about.metrics[-1].of_step:
                yield "Devices beyond the ranks of a row are its replicas, as in `tfacct train`."
            yield from [model_notes.TIGHTLY] if any(map(about.is_tight, about.rows)) else []
            yield from about.limit.notes
        yield from counted.notes(shown.settings)
        if len(shown.every) == 1:
            yield from counted.window_notes(shown.settings)

    return build.report(
        SweepReport,
        [replace(swept.settings[0], defaulted=build.shared_defaults(swept.settings), changed={}) for swept in every],
        _table(about),
        [_facts(swept, about) for swept in every],
        title=_title(about) + counted.assumed([swept.settings[0] for swept in every]),
        answer=_fitting(about) or "".join(overtaken) or _range(about),
        notes=notes,
        convention=counted.convention(about.settings, about.request.logits),
        requests=[about.at(max(grid.contexts) if grid.contexts else None, 1)],
        settings=[swept.settings for swept in every],
        skipped=left_out,
    )


def _facts(swept: Swept, about: Sweep) -> dict[str, Any]:
    """Keys of `SweepReport`."""
    longest = max(swept.settings, key=lambda model: model.context)
    work = selection.workload(longest, about.at(*about.grid.corner))
    stored = selection.stored_name(swept.settings, about.terms.dtype)
    return {
        "set": {name: values[0] for name, values in about.grid.knobs.items() if len(values) == 1},
        "swept": about.knobs,
        "metrics": [metric.name for metric in about.metrics],
        **about.terms.facts(swept.settings[0], work, stored),
        **about.terms.recipe_facts(about.metrics),
        **{name: None for name in about.grid.recipe if name in RecipeReport.__annotations__},
        "lines": swept.rows,
        "skipped": swept.skipped,
    }


def _table(about: Sweep) -> Table:
    drawn = about.metrics[-2 if about.limit and len(about.metrics) > 1 else -1].name  # with a limit, its bytes are last
    varies = len({values[drawn] for swept in about.every for values in swept.rows}) > 1
    columns = (
        *(Column(knob, knob, "text" if knob == "model" else "amount", names_rows=True) for knob in about.knobs),
        *(Column(metric.name, label(metric.name, train=about.terms.train), metric.unit) for metric in about.metrics),
        *((Column("fits", "fits"),) if about.limit is not None else ()),
        *((Column("bar", "", "bar", drop=4),) if varies else ()),
    )

    def row(values: Mapping[str, Any]) -> Row:
        shown: dict[str, Cell] = {
            name: value
            if isinstance(value, (int, Fraction, str)) and not isinstance(value, bool)
            else build.format_value(value)
            for name, value in values.items()
        }
        fits = model_notes.fits_word(values["fits"], about.is_tight(values)) if about.limit else None
        return {**shown, "fits": fits, "bar": Fraction(values[drawn])}

    return columns, tuple(tuple(map(row, swept.rows)) for swept in about.every), ()


def label(name: str, *, train: bool = False) -> str:
    """The label of a metric in a table."""
    if name == "ratio_to_rule_of_thumb":
        return build.ratio_label(train)
    kind, _, of = name.partition(".")
    return f"{build.COMPONENTS.get(of, of)} {LABELS.get(kind, kind)}" if of else LABELS.get(name, name)


def setting(knob: str, value: Any) -> str:
    """The model, or the value of another knob: `ctx 1,024`."""
    return str(value) if knob == "model" else f"{knob} {build.format_value(value)}"


def _title(about: Sweep) -> str:
    """The model, what varies, and what does not."""
    every, knobs, request = about.every, about.knobs, about.request
    first, values = every[0].settings[0], every[0].rows[0]
    fixed = {name: value for name, value in values.items() if name in ("ctx", "batch") and name not in knobs}
    fixed |= {name: value for name, value in first.changed.items() if name not in knobs}
    if len({swept.settings[0].context for swept in every}) > 1:
        fixed.pop("ctx", None)
    words = [f"{name} {build.format_value(value)}" for name, value in fixed.items()]
    words += [] if request.new is None else [units.number_of(request.new, "new token")]
    return ", ".join([f"{first.name if len(every) == 1 else 'Sweep'} over {' and '.join(knobs)}", *words])


def _crossing_point(about: Sweep) -> Point | None:
    """The model and its smallest step, in a sweep of one model over contexts that shows the share of attention."""
    shown = any(metric.name == "share.attn_scores_values" for metric in about.metrics)
    if about.grid.ranks or len(about.settings) > 1 or "ctx" not in about.grid.varied or not shown:
        return None
    (model,) = about.settings
    return about.terms.point(model, selection.workload(model, about.at(*about.grid.corner)))


def _fitting(about: Sweep) -> str:
    """The combinations that fit the devices; of contexts or batches alone, the largest. Empty without devices."""
    if (limit := about.limit) is None:
        return ""
    layout = None if about.grid.ranks else about.terms.on(limit, training=about.metrics[-1].of_step).mesh
    where, fitting = fitting_words(limit, layout), [row for row in about.rows if row["fits"]]
    if about.knobs in (["ctx"], ["batch"]) and 0 < len(fitting) < len(about.rows):
        (knob,) = about.knobs
        most = "A context" if knob == "ctx" else "A batch"
        return f"{most} of {max(row[knob] for row in fitting):,} is the largest of these that fits {where}."
    return f"{len(fitting):,} of {len(about.rows):,} combinations fit {where}."


def _range(about: Sweep) -> str:
    """The least and the greatest value of the first metric, with their combinations."""
    metric, rows = about.metrics[0], about.rows
    name, column = metric.name, Column(metric.name, "", metric.unit)
    least, most = (side(rows, key=lambda values: values[name]) for side in (min, max))
    if least[name] == most[name]:
        return f"{name} is {column.text(least[name])}{' throughout' if len(rows) > 1 else ''}."

    def words(values: Mapping[str, Any]) -> str:
        where = ", ".join(setting(knob, values[knob]) for knob in about.knobs if knob in values)
        return f"{column.text(values[name])} ({where})"

    return f"{name}: from {words(least)} to {words(most)}."


def _skipped(every: Sequence[Swept]) -> list[str]:
    """The skipped combinations, by reason."""
    reasons: dict[str, list[str]] = {}
    for swept in every:
        who = f"{swept.settings[0].name} with " if len(every) > 1 else ""
        for one in swept.skipped:
            fields = ", ".join(f"{name} {build.format_value(value)}" for name, value in one.items() if name != "why")
            reasons.setdefault(one["why"], []).append(f"{who}{fields}")
    words = [f"{listed(settings, NAMED)} ({why})" for why, settings in list(reasons.items())[:NAMED]]
    more = sum(map(len, list(reasons.values())[NAMED:]))
    return [f"Skipped as impossible: {'; '.join(words)}{f'; {more:,} more' if more else ''}."] if words else []
