"""Parallel layouts of a number of devices that fit a model, sorted by time, memory, or bytes sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from shlex import quote
from typing import TYPE_CHECKING, Any, TypedDict, get_args

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.lazy import LazySequence
from tfacct.base.record import record
from tfacct.base.spelling import option, shell_option
from tfacct.ledger.storage import dtypes, width
from tfacct.ledger.workload import Request, Workload, check_size, whole_sequences
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Note, NoteRow, Row, Table, notes
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import Mesh, ranks_of
from tfacct.parallel.model_collectives import RankCollectives
from tfacct.parallel.pipeline import bubble
from tfacct.parallel.search import SIZES, label, layouts_with, sizes_of
from tfacct.parallel.support import unsupported_part
from tfacct.reports import build, comms, model_notes
from tfacct.timing.layout_time import MEGATRON, Order, ServingTimes, Times, ranking, times_of
from tfacct.training.layout_search import (
    RECOMPUTE,
    Candidate,
    SearchResult,
    TrainingSearch,
    search_serving,
    serving_collectives,
)
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit

AT_MOST = 10
"""Rows of the table by default."""
LARGEST = 2**20
"""The most devices that are accepted."""


class PlannedLayout(TypedDict):
    """A parallel layout. `batch`: sequences of a micro-batch on a rank; `times`: micro-batches of a step. `bytes`,
    `sent_bytes`: of a rank. `seconds`: an estimate, by the law `timed_as` over these links. The commands report its
    memory and its time."""

    tp: int
    sp: bool
    fsdp: int
    dp: int
    zero: int
    pp: int
    cp: int
    cp_method: str | None
    ep: int
    ulysses: int
    batch: int
    times: int
    recompute: str | None
    bytes: int
    sent_bytes: int
    bubble_ratio: float | None
    seconds: float | None
    timed_as: str | None
    links: list[build.LinkUsed]
    command: str
    time_command: str | None


class PlanReport(build.ModelReport):
    """Parallel layouts that fit a model or its training step."""

    workload: build.WorkloadFacts
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    train: bool
    gpus: int
    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int
    by: Order
    fitting: int
    tried: int
    not_counted: dict[str, int]
    layouts: list[PlannedLayout]
    larger: list[PlannedLayout]
    collectives: list[comms.Collectives] | None


@record
class Plan:
    """A search for layouts and its result.

    `given`: options of the question, which the printed commands repeat. `ranked`: a candidate of each layout that fits,
    the best first by `by`. `estimates`: the estimator of their time, or None; `reason`: why there is none.
    """

    model: LoadedModel
    work: Workload
    gpus: int
    fit: MemoryLimit
    recipe: Recipe | None
    given: Mapping[str, Any]
    by: Order
    found: SearchResult
    ranked: Sequence[Candidate]
    estimates: Times | None = None
    reason: str = ""

    @property
    def shown(self) -> Sequence[Candidate]:
        """Layouts that fit; if none does, the others, the smallest first."""
        return self.ranked or self.found.larger

    @property
    def laws(self) -> dict[str, list[Candidate]]:
        """Layouts that fit, by the law of their estimate, "" without one; the best first."""
        found: dict[str, list[Candidate]] = {}
        for one in self.ranked:
            found.setdefault("" if one.estimate is None else one.estimate.stack, []).append(one)
        return found

    @property
    def timed(self) -> list[Candidate]:
        """Layouts that fit and have an estimate of their time."""
        return [one for one in self.ranked if one.estimate is not None]

    @property
    def unit(self) -> str:
        """What the bytes sent are counted per."""
        return "a step" if self.recipe is not None else "a token" if self.model.has_cache else "a pass"


def plan(
    model: LoadedModel,
    request: Request,
    *,
    gpus: int,
    fit: MemoryLimit,
    recipe: Recipe | None = None,
    given: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    layout: Mesh | None = None,
    by: Order | None = None,
    limit: int | None = None,
) -> PlanReport:
    """Layouts of `gpus` devices that fit a model, or with a `recipe` its training step. The batch is that of all
    devices.

    `fit`: memory of each device. `given`: options of the recipe that were given. `layout`: the axes that were given; of
    a whole layout memory, collectives and time are reported. `by`: the order; by default time, or bytes sent without an
    estimate. `limit`: rows of the table, 0 for all; ten by default. Raises UsageError.
    """
    if by is not None and by not in get_args(Order):
        raise UsageError(f"{option('by')} is {', '.join(get_args(Order))}, not {by!r}")
    check_size(option("gpus"), gpus)
    if gpus > LARGEST:
        raise UsageError(f"{option('gpus')} is at most {LARGEST:,}, not {gpus:,}")
    limit = AT_MOST if limit is None else limit
    if limit < 0:
        raise UsageError(f"{option('limit')} must be a number of rows, or 0 for all, not {limit}")
    if request.decode or request.tokens is not None:
        raise whole_sequences("plan")
    work, given = selection.runnable(model, request), given or {}
    meshes = layouts_with(model, gpus, work.tokens, layout or Mesh(), train=recipe is not None)
    whole = layout is not None and layout.ranks == gpus
    if recipe is not None:
        tried = (recipe.recompute,) if "recompute" in given else RECOMPUTE
        search = TrainingSearch(model, recipe, work, fit.usable, recompute=tried, least=by == "memory")
        found = search.result(meshes, given=whole)
    else:
        found = search_serving(model, work, meshes, fit.usable, dtype, width(dtypes(dtype, kv_dtype)[1]))
    if not found.counted and layout is not None:
        reason = (
            Counter(found.skipped).most_common(1)[0][0] if found.skipped else "the search does not include such layouts"
        )
        raise UsageError(f"{model.name}: {label(layout)} on {_devices(gpus)}: {reason}")
    if not found.counted:
        raise _uncounted(model, work, recipe, found, gpus)
    estimates, reason = None, ""
    if by == "time" or (by is None and fit.device is not None):
        estimates, reason = times_of(model, work, fit.device, gpus, recipe, dtype, kv_dtype, needed=by == "time")
    by, ranked, reason = ranking(found, estimates, by, reason)
    options = {name: value for name, value in given.items() if name not in ("recompute", "gradient_accumulation")}
    options |= {"dtype": dtype, "kv_dtype": kv_dtype}
    one = Plan(model, work, gpus, fit, recipe, options, by, found, ranked, estimates, reason)
    best = one.shown[0]
    lines: list[Collective] | None = None
    if recipe is None:
        what, stored = f"serving in {selection.format_name(model, dtype)}", model.storage(dtype).name
        if whole:
            lines = serving_collectives(model, best.mesh, replace(work, batch=best.batch), dtype)
    else:
        what, stored = f"a training step in {replace(recipe, mesh=Mesh(fsdp=gpus)).precision}", recipe.dtype
        if whole:
            lines = search.collectives(best.mesh, best.batch, best.times)
    also = f", {recipe.description}" if recipe is not None else ""
    return build.report(
        PlanReport,
        [model],
        _table(one, limit) if lines is None else comms.table(lines),
        [_facts(one, stored, lines) | selection.format_facts(model, dtype if recipe is None else recipe.dtype)],
        title=f"{build.label(model)}: layouts of {_devices(gpus)}, {what},"
        f" {build.workload_words([model], request)}{also}",
        answer=_answer(one) if lines is None else _explained(one),
        convention="each layout counted as in `train` and `memory`",
        notes=lambda _: [*notes(NOTES, one), *([] if lines is None else _layout_notes(one, lines))],
        counted=f"memory and communication of one rank; {'' if one.timed else 'no time, '}no network topology",
        requests=[request],
        headline="fitting",
    )


def _uncounted(model: LoadedModel, work: Workload, recipe: Recipe | None, found: SearchResult, gpus: int) -> UsageError:
    """Why no layout is counted: the recipe, a part of the model, FSDP, or the most frequent reason."""
    reason = None if recipe is None else refusal(model, recipe)
    if reason is None and gpus > 1 and (part := unsupported_part(model.architecture)):
        reason = f"a parallel layout does not support {part}"
    if reason is None and recipe is not None:
        reason = refusal(model, replace(recipe, mesh=Mesh(fsdp=gpus)))
    none = f"{model.name}: no layout of {_devices(gpus)} is supported"
    if reason is not None:
        return UsageError(f"{none}: {reason}")
    even = option("batch", -(-work.batch // gpus) * gpus)
    advice = f"give a multiple of {gpus:,}: {even}" if work.batch % gpus else None
    return UsageError(f"{none}: {Counter(found.skipped).most_common(1)[0][0]}", advice)


# Layouts in words and as commands.


def _named(one: Candidate) -> str:
    """The layout and its recomputation: `tp=8 fsdp=8, recompute full`."""
    return label(one.mesh) if one.recompute == RECOMPUTE[0] else f"{label(one.mesh)}, recompute {one.recompute}"


def _devices(count: int) -> str:
    return f"{count:,} device{'' if count == 1 else 's'}"


def _typed(options: Iterable[tuple[str, Any]]) -> str:
    """Options of a command, each after a space."""
    return "".join(
        f" {shell_option(name)}" if value is True else f" {shell_option(name)} {value}"
        for name, value in options
        if value not in (None, False)
    )


def _model(one: Plan) -> str:
    sets = [f" --set {quote(f'{field}={build.format_value(value)}')}" for field, value in one.model.changed.items()]
    return quote(one.model.path or one.model.name) + "".join(sets)


def _command(one: Plan, of: Candidate) -> str:
    """The command that reports the memory of a layout."""
    train, sizes = one.recipe is not None, sizes_of(of.mesh)
    if not train:  # one of the replicas, with its part of the batch
        sizes.pop("dp", None)
    elif sizes == {"fsdp": one.gpus}:  # the default layout of devices
        sizes = {}
    context = one.work.context
    given: dict[str, Any] = {"ctx": context if context % 1024 else f"{context // 1024}k", **one.given}
    given |= {} if of.recompute == RECOMPUTE[0] else {"recompute": of.recompute}
    given |= {**sizes, "batch": of.batch if of.batch > 1 else None}
    given |= {"accumulate": of.times} if of.times > 1 else {}
    count = one.gpus if train else ranks_of(replace(of.mesh, dp=1))
    given["on"] = " ".join([f"{f'{count}x' if count > 1 else ''}{one.fit.each}", *_usable(one)])
    return f"tfacct {'train' if train else 'memory'} {_model(one)}{_typed(given.items())}"


def _time_command(one: Plan, of: Candidate) -> str | None:
    """The command that estimates the time of a layout; None without an estimate."""
    if of.estimate is None:
        return None
    return " ".join(["tfacct time", _model(one), of.estimate.options, *_usable(one)])


def _usable(one: Plan) -> list[str]:
    return one.fit.options(training=one.recipe is not None)


# The answer and the table.


def _answer(one: Plan) -> str:
    many, counted = len(one.ranked), one.found.counted
    if not many:
        nearest, size = one.found.larger[0], one.fit.size
        needs = f"({_named(nearest)}) needs {units.binary(nearest.bytes)}"
        over = f"{units.binary(nearest.bytes - one.fit.usable)} more"
        if counted == 1:
            return f"Does not fit: the only layout of {_devices(one.gpus)} {needs}, {over} than the usable {size}."
        return f"None of {counted:,} layouts of {_devices(one.gpus)} fits in {size}. The smallest {needs}, {over}."
    best, laws = one.ranked[0], {name: found[0] for name, found in one.laws.items() if found[0].estimate is not None}
    if len(laws) > 1:
        each = [f"under {name}: {_named(first)}, {_takes(one, first)}" for name, first in laws.items()]
        return f"{many:,} layouts fit. Fastest {'; '.join(each)}."
    value = {"memory": f"{units.binary(best.bytes)} per device", "sent": f"{units.binary(best.sent)} sent {one.unit}"}
    sentence = f"{_named(best)}, {value.get(one.by) or _takes(one, best)}"
    if one.by == "sent" and (idle := _bubble(one, best)):
        sentence += f"; pipeline bubble {units.percent(idle)} of the computing time"
    if many == 1:
        return f"One layout of {_devices(one.gpus)} fits: {sentence}."
    if one.by == "sent" and one.reason:
        return f"{many:,} layouts fit, none with a time estimate. Least sent: {sentence}."
    among = f"{many:,} layouts that fit"
    if one.by == "time" and len(one.timed) < many:
        among = f"{len(one.timed):,} layouts with an estimate ({many:,} fit)"
    first = {"time": "Fastest", "memory": "Least memory", "sent": "Least sent"}[one.by]
    return f"{first} of {among}: {sentence}."


def _explained(one: Plan) -> str:
    """Memory, bytes sent and time of a layout that was given."""
    of = one.shown[0]
    device, usable = one.fit.device, one.fit.usable
    where = f"in {one.fit.size}" if device is None else f"on {f'{one.gpus:,} × ' if one.gpus > 1 else ''}{device.id}"
    needs = f"{units.binary(of.bytes)} of {units.budget(usable) if device is None else units.binary(usable)}"
    named = _named(of) if of.recompute == RECOMPUTE[0] else f"{_named(of)},"
    if not one.ranked:
        return f"{named} does not fit {where}: each device needs {units.needed_and_usable(of.bytes, usable)}."
    takes = f", {_takes(one, of)}" if of.estimate is not None else ""
    return f"{named} fits {where}: {needs}, {units.binary(of.sent)} sent{takes or f' {one.unit}'}."


def _takes(one: Plan, of: Candidate) -> str:
    assert of.estimate is not None and one.estimates is not None
    return f"≈ {units.seconds(of.estimate.seconds)} {one.estimates.unit}"


def _table(one: Plan, limit: int) -> Table:
    """Layouts that fit, the best first; if none does, those that need least."""
    laws = one.laws
    train, several = one.recipe is not None, len(laws) - ("" in laws) > 1
    columns = (
        Column("division", "layout"),
        Column("batch", "batch × steps", "dims", drop=1, keys=("batch", "times"))
        if train
        else Column("batch", "batch", "count", drop=1),
        *([Column("recompute", "recompute")] if train else []),
        Column("bytes", "GiB/GPU", "bytes", unit="GiB"),
        Column("sent_bytes", "sent/GPU", "bytes", drop=0 if one.by == "sent" else 1),
        *([Column("bubble", "bubble", "share", drop=1)] if any(_bubble(one, of) for of in one.shown) else []),
        *([Column("seconds", "≈ time", "seconds")] if one.timed else []),
        *([Column("timed_as", "fitted on")] if several else []),
    )
    most = limit or max(1, len(one.shown))
    if not one.ranked:  # the larger ones are lazy
        return columns, (tuple(_row(one, of) for of in one.found.larger[:most]),), ()
    sections, left = [], most
    for number, found in enumerate(laws.values()):
        shown = found[: max(1, left // (len(laws) - number))]
        sections.append(tuple(_row(one, of) for of in shown))
        left -= len(shown)
    return columns, tuple(sections), ()


def _bubble(one: Plan, of: Candidate) -> Fraction | None:
    """Idle over computing time of the pipeline stages of a training step; None without a pipeline."""
    if one.recipe is None or of.mesh.pp == 1:
        return None
    return bubble(of.mesh, of.mesh.microbatches or of.batch)


def _row(one: Plan, of: Candidate) -> Row:
    return {
        "division": label(of.mesh),
        "batch": (of.batch, of.times) if one.recipe is not None else of.batch,
        "recompute": of.recompute,
        "bytes": of.bytes,
        "sent_bytes": of.sent,
        "bubble": _bubble(one, of),
        "seconds": None if of.estimate is None else Fraction(of.estimate.seconds),
        "timed_as": None if of.estimate is None else of.estimate.stack,
    }


# Notes.


def _skipped(one: Plan) -> Any:
    skipped = one.found.skipped
    if not skipped:
        return None
    many = f"{len(skipped):,} layouts were" if len(skipped) > 1 else "1 layout was"
    return {"many": many, "why": Counter(skipped).most_common(1)[0][0]}


def _errors(one: Plan) -> list[str]:
    """The measured error of the estimates; of a training step one sentence a law."""
    if one.estimates is None or not one.timed:
        return []
    from tfacct.reports import time

    if isinstance(one.estimates, ServingTimes):
        first = one.timed[0]
        return [time.error_note(one.estimates.placed[first.mesh.tp])]
    device, laws = one.estimates.device, [law for law in one.laws if law]
    assert one.recipe is not None
    link = None if one.gpus == 1 else device.link(one.gpus)
    return [time.step_error_note(one.model, device, law == MEGATRON, link, one.recipe.dtype) for law in laws]


def _cache(one: Plan) -> str:
    return dtypes(one.given["dtype"], one.given["kv_dtype"])[1]


def _some(one: Plan, which: Callable[[Candidate], bool]) -> bool:
    return any(map(which, one.shown[:AT_MOST]))


def _sends_again(of: Candidate) -> bool:
    """True if recomputed layers send again."""
    return of.recompute != RECOMPUTE[0] and of.mesh.tp * of.mesh.ep * of.mesh.sequence_shards > 1


NOTES: tuple[NoteRow, ...] = (
    NoteRow("command", 1, lambda one: _command(one, one.shown[0]), "Memory of the first layout: {}"),
    NoteRow(
        "laws",
        1,
        lambda one: len(_errors(one)) > 1,
        "FSDP and Megatron-LM times are from separate fits, so do not compare them: measured FSDP steps used fused"
        " attention, measured Megatron-LM steps did not.",
    ),
    NoteRow("error", 1, lambda one: _errors(one)[:1]),
    NoteRow("no_time", 1, lambda one: one.reason, "No time estimate: {}."),
    NoteRow("skipped", 1, _skipped, "{many} skipped, mostly because: {why}."),
    NoteRow("files", 1, lambda one: one.recipe is None and model_notes.files_notes([one.model], one.given["dtype"])),
    NoteRow("usable", 2, lambda one: one.fit.notes),
    NoteRow("cache", 2, lambda one: one.recipe is None and model_notes.cache_notes([one.model], _cache(one))),
    NoteRow("range", 2, lambda one: one.recipe is None and model_notes.range_notes([one.model], one.given["dtype"])),
    NoteRow("error", 2, lambda one: _errors(one)[1:]),
    NoteRow(
        "no_estimate",
        2,
        lambda one: one.timed and len(one.ranked) > len(one.timed) and {"many": len(one.ranked) - len(one.timed)},
        "{many:,} fitting layouts have no time estimate; they come last, sorted by bytes sent.",
    ),
    NoteRow("time", 2, lambda one: one.timed and _time_command(one, one.timed[0]), "Time of the first layout: {}"),
    NoteRow("links", 2, lambda one: [link.words for link in one.timed[0].estimate.links] if one.timed else []),
    NoteRow(
        "recomputed_sends",
        2,
        lambda one: _some(one, _sends_again),
        "Not included: bytes that recomputed layers send again.",
    ),
    NoteRow(
        "batch",
        3,
        lambda one: one.recipe is not None,
        "batch × steps: largest micro-batch that fits on a rank × micro-batches per optimizer step. Sent bytes are per"
        " optimizer step: DDP reduces gradients once per step, sharded layouts once per micro-batch.",
    ),
    NoteRow(
        "pipeline",
        3,
        lambda one: one.recipe is not None and _some(one, lambda of: of.mesh.pp > 1 and not of.mesh.microbatches),
        "Pipeline stages run one sequence per micro-batch, in a 1F1B schedule.",
    ),
    NoteRow(
        "replicas",
        3,
        lambda one: (
            one.recipe is None and {"unit": f"one {'new token of' if one.model.has_cache else 'pass over'} each"}
        ),
        "The batch is split over the replicas. Bytes sent are for {unit} sequence.",
    ),
    NoteRow(
        "idle",
        3,
        lambda one: (one.recipe is None or not one.timed) and _some(one, lambda of: of.mesh.pp > 1),
        "The order does not include the pipeline bubble.",
    ),
    NoteRow(
        "routing",
        3,
        lambda one: _some(one, lambda of: of.mesh.ep > 1),
        "Routing is assumed even over the experts.",
    ),
)


def _layout_notes(one: Plan, lines: list[Collective]) -> list[Note]:
    """Notes on the collectives of a layout."""
    of = one.shown[0]
    sent = RankCollectives(replace(one.work, batch=of.batch), lines, 0, 0, [of.sent], [0])
    about = comms.Comms(one.model, sent, of.mesh, one.recipe is not None)
    return notes((row for row in comms.NOTES if row.key not in ("stored", "stages", "routing")), about)


def _facts(one: Plan, stored: str, lines: list[Collective] | None) -> dict[str, Any]:
    """Keys of `PlanReport`. `stored`: the format of the weights."""
    larger = one.found.larger
    return {
        "workload": selection.workload_facts(one.work, dtype=stored),
        "train": one.recipe is not None,
        "gpus": one.gpus,
        **one.fit.facts,
        "devices": one.gpus,
        "by": one.by,
        "fitting": len(one.ranked),
        "tried": one.found.counted,
        "not_counted": dict(Counter(one.found.skipped)),
        "layouts": [_layout(one, of) for of in one.ranked],
        "larger": LazySequence(len(larger), lambda: (_layout(one, of) for of in larger)),
        "collectives": None if lines is None else comms.rows(lines),
    }


def _layout(one: Plan, of: Candidate) -> dict[str, Any]:
    """Keys of `PlannedLayout`."""
    mesh, estimate = of.mesh, of.estimate
    return {
        **{name: getattr(mesh, name) for name in SIZES},
        "cp_method": mesh.cp_method if mesh.cp > 1 else None,
        "batch": of.batch,
        "times": of.times,
        "recompute": of.recompute if one.recipe is not None else None,
        "bytes": of.bytes,
        "sent_bytes": of.sent,
        "bubble_ratio": None if (idle := _bubble(one, of)) is None else float(idle),
        "seconds": estimate and estimate.seconds,
        "timed_as": estimate and (estimate.stack or None),
        "links": [link.facts() for link in estimate.links] if estimate else [],
        "command": _command(one, of),
        "time_command": _time_command(one, of),
    }
