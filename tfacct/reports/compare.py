"""Models, or one model at several contexts or dtypes: the numbers of `params`, `memory` and `flops` for each side.

`by_line` compares two sides line by line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from tfacct.accounts.metrics import METRICS, PEAK, STEP_METRICS, Metric, Point, Recompute, flops_of, memory_of
from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError, joined, listed
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.storage import dtypes
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Key, Keys, Object, keys_of, values_of
from tfacct.output.report import Amount, Column, Kind, NoteRow, Row, Table, notes
from tfacct.parallel.mesh import Mesh
from tfacct.reports import build, model_notes
from tfacct.reports.build import DtypeFrom, ModelReport
from tfacct.reports.memory import memory
from tfacct.reports.metrics import WEIGHED, CountedMetrics, Counting, flops_by, metrics_named

if TYPE_CHECKING:
    from tfacct.training.memory import TrainingMemory

WIDE = 6
"""The most sides that are columns; more are rows."""
ALIKE = Fraction(1, 1000)
"""Largest relative difference that the answer ignores."""


class Measure(Key):
    """A row of the table: a metric of a prefill, or with `decode` of one new token. `noun`: its name in the answer,
    which names the largest difference of each `group`."""

    def __init__(self, metric: str, label: str, noun: str, group: str, *, decode: bool = False) -> None:
        super().__init__(lambda numbers: numbers.measured[self.name], None)
        self.metric, self.label, self.noun, self.group, self.decode = metric, label, noun, group, decode


STEP_WEIGHTS = Metric(
    "step_weights_bytes",
    "bytes",
    "Bytes of the weights in a training step.",
    lambda point: memory_of(point).weights_bytes,
    of_step=True,
)
STEP_FLOPS = Metric("step_flops", "flops", "FLOPs of a training step, with recomputation.", flops_of)
OF_STEP = {
    STEP_WEIGHTS.name: "weights",
    "saved_bytes": "saved activations",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    PEAK: "peak memory",
    STEP_FLOPS.name: "FLOPs of a step",
}
"""Metrics of a training step, in words."""
OF_CONTEXT = ("kv_cache_bytes", "prefill_flops", "flops_per_new_token")
"""Measures that depend on the context."""
REQUESTS = "requests"
NOTES = (
    NoteRow("unsupported", 1),
    NoteRow("files", 2),
    NoteRow("allocator", 1, text=model_notes.TIGHTLY),
    NoteRow("buckets", 1),
    NoteRow("limit", 2),
    NoteRow("context", 1, text="Context: the longest that {of} trained for; {ctx} sets another."),
    NoteRow(
        "pairs", 1, text="FLOPs count all pairs of tokens; in {}, a token attends to fewer (`tfacct flops --masked`)."
    ),
)


@record
class Side:
    """A model at a workload, and how it is counted."""

    model: LoadedModel
    request: Request = Request()
    terms: Counting = Counting()

    @property
    def parts(self) -> dict[str, str]:
        """The model, the workload and the terms, in words."""
        sizes = {"ctx": "{:,} tokens", "batch": "batch {:,}", "tokens": "{:,} new tokens"}
        return {
            "model": build.label(self.model),
            **{name: words.format(size) for name, words in sizes.items() if (size := getattr(self.request, name))},
            "dtype": self.terms.dtype or "as published",
            "kv_dtype": f"KV {self.cached}",
            **{name: f"{name} {value}" for name, value in self.terms.trained},
            "layout": self.layout,
        }

    @property
    def layout(self) -> str:
        """The parallel layout of its training step."""
        if self.terms.mesh is None:
            return "one device"
        from tfacct.parallel.search import label

        return label(self.terms.recipe.layout)

    @property
    def cached(self) -> str:
        """The dtype of its KV cache."""
        return dtypes(self.terms.dtype, self.terms.kv_dtype)[1]


@record
class Numbers:
    """The numbers of a side: measures and further metrics by name, None if they are not counted. `tight`: fits, but
    not with what the CUDA allocator reserves. `requests`: those that fit; None without devices, and if `fits` for any
    number. `step`: the training step, if it is counted. `label`: how it differs from other sides."""

    side: Side
    context: int
    measured: Mapping[str, Fraction | None]
    metrics: Mapping[str, Fraction | None]
    fits: bool | None = None
    tight: bool = False
    requests: int | None = None
    step: TrainingMemory | None = None
    label: str = ""

    @property
    def row(self) -> Row:
        """Cells of the table. A metric takes the place of a measure with the same name."""
        requests = "any" if self.fits and self.requests is None else self.requests
        stored = selection.format_name(self.side.model, self.side.terms.dtype)
        fits = None if self.fits is None else model_notes.fits_word(self.fits, self.tight)
        return {
            "label": self.label,
            "context": self.context,
            "format": stored,
            "fits": fits,
            REQUESTS: requests,
            **self.measured,
            **self.metrics,
        }


of_numbers: Keys[[Numbers]] = Keys()
measure: Any = Measure


class CompareReport(ModelReport):
    """Numbers for choosing a model, for each side."""

    label: str = of_numbers(lambda one: one.label)
    context: int = of_numbers(lambda one: one.context)
    dtype_from: DtypeFrom
    published_dtype: str | None
    kv_dtype: str = of_numbers(lambda one: one.side.cached)
    metric_values: dict[str, float | None] = of_numbers(lambda one: one.metrics)
    fits: bool | None = of_numbers(lambda one: one.fits)
    requests: int | None = of_numbers(lambda one: one.requests)
    total_params: int = measure("total_params", "parameters", "parameters", "size")
    active_params: int = measure("active_params", "active parameters", "active parameters", "size")
    weights_bytes: int | None = measure("weights_bytes", "weights{stored}", "weight bytes", "size")
    kv_bytes_per_token: int | None = measure("kv_bytes_per_token", "KV cache{of_token}", "KV cache per token", "cache")
    kv_cache_bytes: int | None = measure("kv_cache_bytes", "{cache} of {tokens}", "{cache}", "cache")
    prefill_flops: int = measure("total_flops", "FLOPs, {step} of {ctx}", "{of_step} FLOPs", "compute")
    flops_per_new_token: int | None = measure(
        "flops_per_token", "FLOPs per new token{at}", "decode FLOPs", "compute", decode=True
    )


MEASURES = tuple(key for key in keys_of(CompareReport).values() if isinstance(key, Measure))


def compare(
    sides: Sequence[Side], *, fit: MemoryLimit | None = None, mesh: Mesh | None = None, metrics: Sequence[str] = ()
) -> CompareReport:
    """Numbers of each side, and with `fit` how many requests of its context fit. `metrics`: further numbers. Raises
    TfacctError, also for a context past a learned position embedding."""
    _check(sides)
    sides, shared = _at_one_context(sides)
    models = [side.model for side in sides]
    reasons: dict[str, list[str]] = {}
    training = _of_training(sides)
    counted = [
        *((STEP_WEIGHTS, *STEP_METRICS.values(), STEP_FLOPS) if training else ()),
        *metrics_named(metrics, models),
    ]
    numbers = [_numbers(side, fit, mesh, counted, reasons) for side in sides]
    values = {one.name: {each.metrics[one.name] for each in numbers} for one in counted}
    changing = {name for name, found in values.items() if len(found) > 1 and None not in found}
    sharded = {"optimizer_bytes"} if len({side.layout for side in sides}) > 1 else set()  # what ZeRO and FSDP shard
    wanted = {STEP_WEIGHTS.name, PEAK, *metrics, *changing, *sharded}
    further = [one for one in dict.fromkeys(counted) if one.name in wanted]
    numbers = [
        replace(each, label=label, metrics={one.name: each.metrics[one.name] for one in further})
        for label, each in zip(_labels(sides), numbers, strict=True)
    ]
    contexts = {one.context for one in numbers}
    columns = (Column("label", "model"), *_columns(numbers, further, fit, mesh))
    rows = tuple(one.row for one in numbers)
    facts = [
        values_of(CompareReport, one, **selection.format_facts(one.side.model, one.side.terms.dtype)) for one in numbers
    ]
    every = list({build.label(one): one for one in models}.values())
    about = {
        "unsupported": [f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in reasons.items()],
        "files": [note for one in every for note in model_notes.files_notes([one])],
        "allocator": any(one.tight for one in numbers),
        "limit": [] if fit is None else list(fit.notes),
        "buckets": _buckets(numbers),
        "context": {},
        "pairs": ", ".join(one.label for one in numbers if _attends_to_fewer(one)),
    }
    if shared or (training and not sides[0].request.ctx):
        about["context"] = {"of": "all these models were" if shared else "the model was", "ctx": option("ctx", "S")}
    cached = " or ".join(dict.fromkeys(side.cached for side in sides))
    cache = f" and {_words(sides)['cache']} in {cached}" if _generate(sides) else ""
    where = f"context {min(contexts):,}" if len(contexts) == 1 else "several contexts"
    title = [models[0].name if len(every) == 1 else f"{len(every):,} models", where]
    report = build.report(
        CompareReport,
        models,
        (columns, (rows,), ()),
        facts,
        title=", ".join([*title, *(_shared_step(sides) if training else ())]),
        convention="parameters, and a training step as run by transformers"
        if training
        else f"{model_notes.products_counted(models)}; bytes of weights{cache}",
        answer=_answer(numbers),
        notes=lambda _: notes(NOTES, about),
        requests=[side.request for side in sides],
        defaults=every,
    )
    if len(sides) > WIDE:
        return report
    across = [Column("what", ""), *(Column(str(at), one.label, "amount", empty="–") for at, one in enumerate(numbers))]
    down = tuple(_row_of(column, rows) for column in columns[1:])
    return replace(report, columns=tuple(across), sections=(down,), aside=(), data=report)


def _at_one_context(sides: Sequence[Side]) -> tuple[Sequence[Side], bool]:
    """The sides at the longest context of all, and True, where no context is given and theirs differ."""
    longest = {side.model.context for side in sides}
    free = all(not side.request.ctx and selection.takes_context(side.model, min(longest)) for side in sides)
    if not free or len(longest) == 1:
        return sides, False
    return [replace(side, request=replace(side.request, ctx=min(longest))) for side in sides], True


def _check(sides: Sequence[Side]) -> None:
    """Raises UsageError if there are not two different sides."""
    if len(sides) < 2:
        raise UsageError(
            "nothing to compare: only one model and one workload",
            f"name a second model, list contexts ({option('ctx', '1k,16k')}), or change a field"
            f" ({spelled('--set FIELD=VALUE', 'diff(FIELD=VALUE)')})",
        )
    known: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for side in sides:
        words = tuple(side.parts.values())
        if known.get(words) == side.model.raw:
            raise UsageError("nothing to compare: the two sides are the same", "name two different models")
        known[words] = side.model.raw


def _shared_step(sides: Sequence[Side]) -> list[str]:
    """What the training steps of all sides have in common."""
    from tfacct.training.recipe import batch_words

    layouts = {side.layout for side in sides}
    rank = f"one rank of {layouts.pop() if len(layouts) == 1 else 'each layout'}" if _on_ranks(sides) else ""

    def words(side: Side) -> tuple[str, ...]:
        recipe, work = side.terms.recipe, selection.workload(side.model, side.request)
        return batch_words(work, recipe), f"a training step in {recipe.precision}", rank, recipe.description

    found = (dict.fromkeys(each) for each in zip(*map(words, sides), strict=True))
    return [next(iter(each)) for each in found if len(each) == 1 and any(each)]


def _row_of(column: Column, rows: Sequence[Row]) -> Row:
    """The row of a table with a column for each side."""
    cells = [row[column.key] for row in rows]
    amounts = [Amount(cell, column.kind) if isinstance(cell, (int, Fraction)) else cell for cell in cells]
    return {"what": column.label, **{str(at): cell for at, cell in enumerate(amounts)}}


def _numbers(
    side: Side, fit: MemoryLimit | None, mesh: Mesh | None, metrics: Sequence[Metric], reasons: dict[str, list[str]]
) -> Numbers:
    """The numbers of a side; `reasons` gets why a number is None."""
    model, plain = side.model, Counting(side.terms.dtype, side.terms.kv_dtype)
    prefill = Request(ctx=side.request.ctx, source=side.request.source)

    def refused(error: TfacctError) -> None:
        reasons.setdefault(error.message.removeprefix(f"{model.name}: "), []).append(model.name)

    def count(what: Metric, request: Request, terms: Counting) -> Fraction | None:
        try:
            work = selection.workload(model, request)
            if what is not STEP_FLOPS:
                return Fraction(what.of(terms.point(model, work, [what])))
            recipe = terms.recipe
            if recipe.lora or recipe.recompute not in get_args(Recompute):
                return None
            from tfacct.training.memory import flops_run_again

            point = replace(terms, mesh=None).point(model, work, [what])
            again = flops_run_again(recipe, point.ledger, point.at, masked=point.masked)
            replicas = 1 if recipe.mesh is None else recipe.mesh.batch_shards
            return Fraction(replicas * (what.of(replace(point, train=True)) + again))
        except TfacctError as error:
            refused(error)
            return None

    context = selection.runnable(model, prefill).context
    measured: dict[str, Fraction | None] = {}
    for one in MEASURES:
        absent = not model.has_cache and one.decode
        request = replace(prefill, decode=one.decode)
        measured[one.name] = None if absent else count(METRICS[one.metric], request, plain)
    further = {what.name: count(what, side.request, side.terms) for what in metrics}
    peak = further.get(PEAK)
    numbers = Numbers(side, context, measured, further, step=None if peak is None else _step(side))
    if fit is None:
        return numbers
    if _of_training([side]):
        return numbers if peak is None else replace(numbers, fits=peak <= fit.usable, tight=fit.is_tight(int(peak)))
    try:
        if mesh is not None:
            from tfacct.parallel.shard_model import as_served

            model = as_served(model)
        (facts,) = memory([model], prefill, dtype=plain.dtype, kv_dtype=plain.kv_dtype, fit=fit, mesh=mesh).models
    except TfacctError as error:
        refused(error)
        return numbers
    most = facts["fit"]
    return replace(numbers, fits=most["fits"], requests=most["largest_batch"])


def _step(side: Side) -> TrainingMemory:
    """The training step of a side."""
    work = selection.workload(side.model, side.request)
    step: TrainingMemory = memory_of(side.terms.point(side.model, work, [STEP_METRICS[PEAK]]))
    return step


def _buckets(numbers: Sequence[Numbers]) -> list[str]:
    """The notes about the gradient buckets of training steps, with the sides that they are about."""
    found: dict[str, list[str]] = {}
    for one in numbers:
        if one.step is None:
            continue
        from tfacct.reports.train import Step, buckets

        if (note := buckets(Step(one.step, None, None))) is not None:
            found.setdefault(f"{note[0].lower()}{note[1:]}", []).append(one.label)
    return [f"{', '.join(of)}: {note}" for note, of in found.items()]


def _attends_to_fewer(one: Numbers) -> bool:
    """True if a new token attends to fewer keys than its FLOPs count, as far as its visible pairs can be counted."""
    all_pairs, side = one.measured["flops_per_new_token"], one.side
    if all_pairs is None:
        return False
    flops, step = METRICS["total_flops"], Request(ctx=side.request.ctx, source=side.request.source, decode=True)
    try:
        point = Counting(masked=True).point(side.model, selection.workload(side.model, step), [flops])
        return Fraction(flops.of(point)) < all_pairs
    except ConfigError:
        return False


def _labels(sides: Sequence[Side]) -> list[str]:
    """The parts in which the sides differ; a cache that follows the dtype of the weights is none."""
    parts = [side.parts for side in sides]
    names = dict.fromkeys(name for one in parts for name in one)
    if all(side.terms.kv_dtype is None for side in sides):
        names.pop("kv_dtype")
    apart = [name for name in names if len({one.get(name) for one in parts}) > 1] or ["model"]
    return [" · ".join(one.get(name) or f"default {name}" for name in apart) for one in parts]


def _columns(
    numbers: Sequence[Numbers], metrics: Sequence[Metric], fit: MemoryLimit | None, mesh: Mesh | None
) -> list[Column]:
    """A column for each number, but none for active parameters that are all parameters, nor for measures that are also
    named as metrics."""
    contexts, sides = {one.context for one in numbers}, [one.side for one in numbers]
    ctx = f"{min(contexts):,}" if len(contexts) == 1 else "a request"
    formats = {selection.format_name(side.model, side.terms.dtype) for side in sides}
    hidden = {one.name for one in metrics}
    if all(one.measured["active_params"] == one.measured["total_params"] for one in numbers):
        hidden.add("active_params")
    stored = f", {next(iter(formats))}" if len(formats) == 1 else ""
    of_token = " per token" if all(map(_grows_evenly, sides)) else ", first token"
    tokens = f"{ctx} tokens" if len(contexts) == 1 else ctx
    words = {"stored": stored, "ctx": ctx, "tokens": tokens, "of_token": of_token, **_words(sides)}
    words["at"] = f" at {ctx}" if len(contexts) == 1 else ""
    shown: list[tuple[str, str, Kind]] = []
    if _longest_differ(numbers):
        shown.append(("context", "context", "count"))
    if len(formats) > 1 and any(side.terms.dtype is None for side in sides):
        shown.append(("format", "format of weights", "text"))
    whole = " of the model" if _on_ranks(sides) else ""
    shown += [
        (one.name, one.label.format(**words) + whole, METRICS[one.metric].unit)
        for one in _measures(sides)
        if one.name not in hidden
    ]
    for one in metrics:
        estimated = "≈ " if one.name == PEAK and any(each.step and not each.step.exact for each in numbers) else ""
        every = ", all ranks" if one is STEP_FLOPS and _on_ranks(sides) else ""
        shown.append((one.name, f"{estimated}{OF_STEP.get(one.name, one.name)}{every}", one.unit))
    if fit is not None and _of_training(sides):
        shown.append(("fits", f"fits {fit.where}", "text"))
    elif fit is not None:
        many = f" of {ctx}" if len(contexts) == 1 else ""
        tp = "" if mesh is None else f" (tp={mesh.tp})"
        shown.append((REQUESTS, f"requests{many} {fit.where}{tp}", "count"))
    return [Column(*column, empty="–") for column in shown]


def _measures(sides: Sequence[Side]) -> Sequence[Measure]:
    """The measures in the table; of training steps only numbers of parameters, and of encoders none of a cache or of
    new tokens."""
    if _of_training(sides):
        return [one for one in MEASURES if METRICS[one.metric].unit == "params"]
    if not _generate(sides):
        return [one for one in MEASURES if one.group != "cache" and not one.decode]
    return MEASURES


def _generate(sides: Sequence[Side]) -> bool:
    return any(side.model.has_cache for side in sides)


def _on_ranks(sides: Sequence[Side]) -> bool:
    """True if the training step of a side is that of one rank."""
    return any(side.terms.mesh for side in sides)


def _words(sides: Sequence[Side]) -> dict[str, str]:
    """Words of the measures: `KV cache`, with the states of fixed size that its bytes include; and the step that has
    all tokens of the context."""
    cache = model_notes.cache_name([side.model for side in sides])
    if not _generate(sides):
        return {"cache": cache, "step": "forward pass", "of_step": "forward-pass"}
    return {"cache": cache, "step": "prefill", "of_step": "prefill"}


def _of_training(sides: Sequence[Side]) -> bool:
    return any(side.terms.train or side.terms.trained for side in sides)


def _longest_differ(numbers: Sequence[Numbers]) -> bool:
    """True if no context is given, and the models' longest ones differ, as image encoders' do."""
    return len({one.context for one in numbers}) > 1 and not any(one.side.request.ctx for one in numbers)


def _grows_evenly(side: Side) -> bool:
    """True if each token adds the same bytes to the cache, as without windows."""
    try:
        point = side.terms.point(side.model, selection.workload(side.model, replace(side.request, tokens=None)))
        return bool(METRICS["kv_bytes_next_token"].of(point) == METRICS["kv_bytes_per_token"].of(point))
    except TfacctError:
        return True


class Difference(NamedTuple):
    """A number of a side, relative to that of the first side."""

    at: int
    noun: str
    group: str
    ratio: Fraction
    decode: bool = False

    @property
    def size(self) -> tuple[float, bool]:
        """Sort key: the size, then decoding first."""
        return round(abs(log(self.ratio)), 2), self.decode


def _answer(numbers: Sequence[Numbers]) -> str:
    """The largest difference from the first side, as the larger number over the smaller, and the largest of the same
    sides in another group of measures. Of models at different longest contexts, only measures that do not depend on the
    context."""
    sides, first = [one.side for one in numbers], numbers[0]
    skipped = OF_CONTEXT if _longest_differ(numbers) else ()
    if not all(map(_grows_evenly, sides)):
        skipped = (*skipped, "kv_bytes_per_token")
    measured = [
        Difference(at, one.noun.format(**_words(sides)), one.group, ratio, one.decode)
        for at, other in enumerate(numbers)
        for one in _measures(sides)
        if one.name not in skipped and (ratio := _ratio(first.measured[one.name], other.measured[one.name]))
    ]
    further = [
        Difference(at, OF_STEP.get(name, name), "metrics", ratio)
        for at, other in enumerate(numbers)
        for name, before in first.metrics.items()
        if (ratio := _ratio(before, other.metrics[name]))
    ]
    peaks = [one for one in further if one.noun == OF_STEP[PEAK]]
    found = peaks or further or measured if _of_training(sides) else measured or further
    uncounted = [one.label for one in numbers if one.metrics.get(PEAK, 0) is None]
    if not found and uncounted:
        return f"Not counted: the training step of {listed(uncounted)}; the note gives the reason."
    if not found:
        alike = all(one.measured == first.measured and one.metrics == first.metrics for one in numbers)
        same = OF_STEP[PEAK] if _of_training(sides) else "parameters, bytes and FLOPs"
        return f"All models have the same {same}{'' if alike else ' within 0.1%'}."
    most = max(found, key=lambda one: one.size)
    others = [one for one in found if one.at == most.at and one.group != most.group]
    (less, more), power = ((0, most.at), 1) if most.ratio > 1 else ((most.at, 0), -1)
    words = f"{_times(most.ratio**power)} the {most.noun} of {numbers[less].label}"
    if others:
        other = max(others, key=lambda one: one.size)
        words += f" and {_times(other.ratio**power)} its {other.noun}"
    verb = " has" if build.label(sides[0].model) != build.label(sides[most.at].model) else ":"
    return f"{numbers[more].label}{verb} {words}."


def _ratio(before: Fraction | None, after: Fraction | None) -> Fraction | None:
    """The ratio of two numbers; None if they are alike, or if one is missing or zero."""
    ratio = Fraction(after, before) if before and after else Fraction(1)
    return ratio if abs(ratio - 1) > ALIKE else None


def _times(ratio: Fraction) -> str:
    """`3.8 ×`, `0.65 ×`, `120 ×`; more digits near 1."""
    near = Fraction(9, 10) < ratio < Fraction(11, 10)
    if Fraction(99, 100) < ratio < Fraction(101, 100):
        return f"{float(ratio):.4g} ×"
    return f"{units.three(ratio) if near or ratio >= 100 else f'{float(ratio):.2g}'} ×"


# Two sides line by line.


TOTALS = {
    "total_flops": "total FLOPs",
    "flops_per_token": "FLOPs per token",
    "total_params": "parameters",
    "active_params": "active parameters",
    "weights_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "total_bytes": "weights + KV cache",
}
"""Metrics of the totals, and their labels."""
NEW_TOKEN = "flops_per_new_token"
PREFILL = "prefill FLOPs (all T × S pairs)"
"""Name of total FLOPs that hide a change of decode steps: those of all pairs, whatever the window."""
ANSWERED = ("total_flops", NEW_TOKEN, "total_params", "weights_bytes", "kv_cache_bytes")
"""Totals that the answer names; weights only if they change by another factor than parameters."""
UNITS = {"flops": "FLOPs", "params": "params", "bytes": "bytes"}


@record
class Change:
    """A line or a total of two sides, None of the side without it; of a line the shares in all FLOPs or parameters."""

    path: str
    kind: Kind
    old: Any
    new: Any
    old_share: Fraction | None = None
    new_share: Fraction | None = None

    @property
    def delta(self) -> Any:
        """New less old."""
        return (self.new or 0) - (self.old or 0)

    @property
    def ratio(self) -> Fraction | None:
        """New over old; None if old is nothing."""
        return Fraction(self.new or 0) / self.old if self.old else None

    @property
    def closeness(self) -> Fraction:
        """The smaller side over the larger one: 1 if nothing changes."""
        smaller, larger = sorted((Fraction(self.old), Fraction(self.new)))
        return smaller / larger

    @property
    def words(self) -> str:
        """`÷ 2`, `−0.3%`, or both sizes if one is zero."""
        if self.old and self.new:
            return units.change(Fraction(self.new) / self.old)
        sized = Column("", "", self.kind)
        return " → ".join(sized.text(side) if side else "0" for side in (self.old, self.new))

    def row(self, totals: Mapping[str, str]) -> Row:
        """Cells of the table. `totals`: labels of totals."""
        old, new, delta = (
            None if side is None else Amount(side, self.kind) for side in (self.old, self.new, self.delta)
        )
        return {
            "what": totals.get(self.path) or paths.short(self.path),
            "unit": UNITS[self.kind],
            "old": old,
            "new": new,
            "delta": delta,
            "change": self.ratio - 1 if self.ratio is not None else None,
            "share": None if self.old_share is self.new_share is None else (self.old_share, self.new_share),
        }


of_change: Keys[[Change]] = Keys()


class DiffTotal(Object):
    """One total, before and after."""

    path: str = of_change(lambda one: one.path)
    unit: str = of_change(lambda one: one.kind)
    old: float | None = of_change(lambda one: one.old)
    new: float | None = of_change(lambda one: one.new)
    delta: float = of_change(lambda one: one.delta)


class DiffLine(DiffTotal):
    """One matmul or tensor before and after, with its share in all FLOPs or parameters."""

    old_share: float | None = of_change(lambda one: one.old_share)
    new_share: float | None = of_change(lambda one: one.new_share)


class DiffReport(ModelReport):
    """FLOPs, parameters and bytes before and after a change."""

    _line = DiffLine

    old_side: dict[str, Any]
    new_side: dict[str, Any]
    totals: dict[str, DiffTotal]


LINE_NOTES = (
    NoteRow("set", 1),
    NoteRow("unknown", 1, text="Not included: bytes of the weights ({})."),
    NoteRow("models", 2),
    NoteRow("windows", 2),
)


def by_line(old: Side, new: Side, *, every: bool = False) -> DiffReport:
    """FLOPs and parameters of every line, and totals of FLOPs and bytes, of two sides. The table has the rows that
    change, or `every` one. Raises TfacctError, also if nothing can change."""
    if old.model.name != new.model.name:
        (old, new), _ = _at_one_context([old, new])
    models, terms, to = [old.model, new.model], old.terms, new.terms
    unknown = selection.storages([old.model], terms.dtype)[1] | selection.storages([new.model], to.dtype)[1]
    metrics = [METRICS[name] for name in TOTALS if not (unknown and name in WEIGHED)]
    works = [selection.workload(side.model, side.request) for side in (old, new)]
    points = [side.terms.point(side.model, work, metrics) for side, work in zip((old, new), works, strict=True)]
    counted = CountedMetrics(metrics, terms, to)
    stored = counted.dtypes(models)
    same = old.model.raw == new.model.raw and works[0] == works[1]
    if same and max(map(len, stored)) == 1:
        raise UsageError(
            f"nothing changes: both sides are {build.label(old.model)} at the same workload",
            f"{spelled('change a field with --set', 'set a field by its name')}, list two values, such as"
            f" {option('ctx', '1k,16k')} or {option('dtype', 'bf16,fp8')}, or name a second model",
        )
    cache = model_notes.cache_name(models)
    names = {name: label.replace("KV cache", cache) for name, label in TOTALS.items()}
    flops = _pairs([flops_by(point, lambda one: one.path) for point in points], "flops")
    params = _pairs([point.ledger.parameters() for point in points], "params")
    totals = _totals(metrics, *points)
    if (decode := _decode(old, new)) is not None and not totals[0].delta:
        totals.insert(1, decode)
        names |= {NEW_TOKEN: "FLOPs per new token", "total_flops": PREFILL}
    shown = [lines if every else [line for line in lines if line.delta] for lines in (flops, params, totals)]
    if not any(shown):
        shown = [[], [], totals]
    one_model = (old.model.name, old.model.path) == (new.model.name, new.model.path)
    about = {
        "models": counted.notes(models),
        "set": _changed_defaults(*models) if one_model else [],
        "unknown": [f"{name}: {why}" for name, why in unknown.items()],
        "windows": (one_model or old.model.family == new.model.family) and counted.window_notes([new.model]),
    }
    report = build.report(
        DiffReport,
        models,
        _line_table(shown, names),
        [
            {
                "model": build.label(new.model),
                "old_side": _side(old, points[0], weighed=not unknown),
                "new_side": _side(new, points[1], weighed=not unknown),
                "lines": [values_of(DiffLine, line) for line in (*flops, *params)],
                "totals": {line.path: values_of(DiffTotal, line) for line in totals},
                "left_out": list(WEIGHED) if unknown else [],
            }
        ],
        title=_title(old, new) + _stored(stored, cache),
        answer=_change_words(totals, names),
        notes=lambda _: notes(LINE_NOTES, about),
        convention=counted.convention(models, old.request.logits),
        requests=[old.request, new.request],
        defaults=[replace(old.model, defaulted=build.shared_defaults(models))] if one_model else models,
    )
    if every or shown == [flops, params, totals]:
        return report
    return replace(report, notes=(f"{option('all', True)} also shows the rows that do not change.", *report.notes))


def _changed_defaults(old: LoadedModel, new: LoadedModel) -> list[str]:
    """Fields with a class default that the changed fields change too."""
    values = {name: (old.defaulted.get(name, value), value) for name, value in new.defaulted.items()}
    return [
        f"{name} changes too, {build.format_value(before)} → {build.format_value(after)}: the config does not set it."
        for name, (before, after) in values.items()
        if before != after
    ]


def _side(side: Side, point: Point, *, weighed: bool) -> dict[str, Any]:
    """`old_side` or `new_side` of the JSON."""
    weights = point.weights.name if weighed else None
    facts = {**build.facts_of(side.model), **side.terms.facts(side.model, point.work, weights)}
    return facts | {"latent_attention": model_notes.latent_mode(side.model, point)}


def _line_table(sections: Sequence[Sequence[Change]], names: Mapping[str, str]) -> Table:
    columns = (
        Column("what", "what"),
        Column("unit", "", drop=1),
        Column("old", "old", "amount", empty="–"),
        Column("new", "new", "amount", empty="–"),
        Column("delta", "Δ", "amount", signed=True, empty="unchanged"),
        Column("change", "change", "change", drop=2, empty="new"),
        *((Column("share", "share", "shares", drop=3, keys=("old_share", "new_share")),) if any(sections[:-1]) else ()),
    )
    return columns, tuple(tuple(line.row(names) for line in section) for section in sections if section), ()


def _stored(dtypes: Sequence[Sequence[str]], cache: str) -> str:
    """Changes of the storage, after a title."""
    both = zip(("weights", cache), map(" → ".join, dtypes), strict=True)
    changed = ", ".join(f"{what} {sides}" for what, sides in both if "→" in sides)
    return changed and f"; {changed}"


def _change_words(totals: Sequence[Change], names: Mapping[str, str]) -> str:
    """How the totals change, the largest change first."""
    there = {line.path: line for line in totals if line.old or line.new}
    named = [there[name] for name in ANSWERED if name in there]
    if len({line.ratio for line in named if line.path in ("total_params", "weights_bytes")}) == 1:
        named = [line for line in named if line.path != "weights_bytes"]
    changed = sorted((line for line in named if line.delta), key=lambda line: line.closeness)
    same = [names[line.path] for line in named if not line.delta]
    words = ", ".join(f"{names[line.path]} {line.words}" for line in changed)
    unchanged = f"{joined(same)} unchanged" if same else ""
    answer = ("; " if len(same) > 1 else ", ").join(filter(None, (words, unchanged)))
    return f"{answer[:1].upper()}{answer[1:]}."


def _title(old: Side, new: Side) -> str:
    """Both sides by name; the workload once, unless it changes."""
    first, second = build.label(old.model), build.label(new.model)
    before, after = (build.workload_words([side.model], side.request) for side in (old, new))
    if before == after:
        same = first == second and old.model.raw == new.model.raw
        return f"{first}, {before}" if same else f"{first} → {second}, {after}"
    if first == second:
        return f"{first}: {before} → {after}"
    sides = ((first, before), (second, after))
    return " → ".join(f"{name}{', ' if ' new token' in words else ' at '}{words}" for name, words in sides)


def _totals(metrics: Sequence[Metric], old: Point, new: Point) -> list[Change]:
    """Metrics of both sides; active parameters only of a model with experts."""
    lines = {one.name: Change(one.name, one.unit, one.of(old), one.of(new)) for one in metrics}
    stored, active = lines["total_params"], lines["active_params"]
    if (stored.old, stored.new) == (active.old, active.new):
        del lines["active_params"]
    return list(lines.values())


def _decode(old: Side, new: Side) -> Change | None:
    """FLOPs of a decode step at the end of both prefills, if they change."""
    steps, flops = [], METRICS["flops_per_token"]
    for side in (old, new):
        if side.terms.train or side.request.new is not None or not side.model.has_cache:
            return None
        work = selection.workload(side.model, replace(side.request, decode=True))
        steps.append(flops.of(side.terms.point(side.model, work, [flops])))
    return None if steps[0] == steps[1] else Change(NEW_TOKEN, "flops", *steps)


def _pairs(sides: Sequence[Mapping[str, int]], kind: Kind) -> list[Change]:
    """Both sides by path, in the order of the old one; a path of the new side alone follows its predecessor there."""
    old, new = sides
    order, before = list(old), 0
    for path in new:
        if path not in old:
            order.insert(before, path)
        before = order.index(path) + 1

    def share(counts: Mapping[str, int], path: str) -> Fraction | None:
        return Fraction(counts[path], sum(counts.values())) if path in counts else None

    return [Change(path, kind, old.get(path), new.get(path), share(old, path), share(new, path)) for path in order]
