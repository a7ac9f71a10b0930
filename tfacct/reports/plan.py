"""Parallel layouts of a number of devices that fit a model, sorted by time, memory, or bytes sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, get_args

from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.lazy import LazySequence
from tfacct.base.record import record
from tfacct.base.spelling import option, typed_options
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.storage import dtypes, width
from tfacct.ledger.workload import Request, Workload, check_size
from tfacct.loading import selection
from tfacct.loading.links import Link, LinkUsed
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, Note, NoteRow, Row, Table, notes
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import Mesh, ranks_of
from tfacct.parallel.model_collectives import RankCollectives
from tfacct.parallel.pipeline import bubble
from tfacct.parallel.search import label, layouts_with, sizes_of
from tfacct.parallel.support import gathers_heads, unsupported_part
from tfacct.reports import build, comms, model_notes
from tfacct.reports.ranks import ROUTING
from tfacct.timing.layout_time import Order, Times, by_law, ranking
from tfacct.timing.placement import Deployment
from tfacct.timing.step_estimate import step_estimate, steps_alike
from tfacct.timing.training_time import Trained
from tfacct.training import states
from tfacct.training.layout_search import (
    RECOMPUTE,
    Candidate,
    SearchResult,
    TrainingSearch,
    search_serving,
    serving_collectives,
)
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal, unsupported

if TYPE_CHECKING:
    from tfacct.loading.devices import Device
    from tfacct.loading.memory_limit import MemoryLimit

AT_MOST = 10
"""Rows of the table by default."""
TIGHT = "*"
"""The sign of a training step that fits, but not with what the CUDA allocator reserves."""
LARGEST = 2**20
"""The most devices that are accepted."""


of_layout: Keys[[Plan, Candidate]] = Keys()
of_plan: Keys[[Plan]] = Keys()


class PlannedLayout(Object):
    """A parallel layout. `batch`: sequences of a micro-batch on a rank; `times`: micro-batches of a training step.
    `bytes`, `sent_bytes`: of a rank. `seconds`: an estimate by measured steps of the software `timed_as`, over these
    links. The commands report its memory and its time."""

    tp: int = of_layout(lambda _, of: of.mesh.tp)
    sp: bool = of_layout(lambda _, of: of.mesh.sp)
    fsdp: int = of_layout(lambda _, of: of.mesh.fsdp)
    dp: int = of_layout(lambda _, of: of.mesh.dp)
    zero: int = of_layout(lambda _, of: of.mesh.zero)
    pp: int = of_layout(lambda _, of: of.mesh.pp)
    cp: int = of_layout(lambda _, of: of.mesh.cp)
    cp_method: str | None = of_layout(lambda _, of: of.mesh.cp_method if of.mesh.cp > 1 else None)
    ep: int = of_layout(lambda _, of: of.mesh.ep)
    ulysses: int = of_layout(lambda _, of: of.mesh.ulysses)
    batch: int = of_layout(lambda one, of: _micro_batches(one, of)[0])
    times: int = of_layout(lambda one, of: _micro_batches(one, of)[1])
    recompute: str | None = of_layout(lambda one, of: of.recompute if one.recipe is not None else None)
    bytes: int = of_layout(lambda _, of: of.bytes)
    sent_bytes: int = of_layout(lambda _, of: of.sent)
    bubble_ratio: float | None = of_layout(lambda one, of: None if (idle := _bubble(one, of)) is None else float(idle))
    seconds: float | None = of_layout(lambda _, of: of.estimate and of.estimate.seconds)
    timed_as: str | None = of_layout(lambda _, of: of.estimate and (of.estimate.stack or None))
    links: list[LinkUsed] = of_layout(lambda _, of: [link.facts() for link in of.links])
    command: str = of_layout(lambda one, of: _command(one, of))
    time_command: str | None = of_layout(lambda one, of: _time_command(one, of))


class PlanReport(build.ModelReport):
    """Parallel layouts that fit a model or its training step."""

    workload: build.WorkloadFacts = of_plan(lambda one: selection.workload_facts(one.work, dtype=one.dtype))
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    train: bool = of_plan(lambda one: one.recipe is not None)
    gpus: int = of_plan(lambda one: one.gpus)
    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int
    by: Order = of_plan(lambda one: one.by)
    fitting: int = of_plan(lambda one: len(one.ranked))
    tried: int = of_plan(lambda one: one.found.counted)
    not_counted: dict[str, int] = of_plan(lambda one: dict(Counter(one.found.skipped)))
    layouts: list[PlannedLayout] = of_plan(lambda one: [values_of(PlannedLayout, one, of) for of in one.ranked])
    larger: list[PlannedLayout] = of_plan(
        lambda one: LazySequence(
            len(one.found.larger), lambda: (values_of(PlannedLayout, one, of) for of in one.found.larger)
        )
    )
    collectives: list[comms.Collectives] | None = of_plan(lambda one: one.lines and comms.rows(one.lines))


@record
class Plan:
    """A search for layouts and its result.

    `given`: options of the question, which the printed commands repeat. `ranked`: a candidate of each layout that fits,
    the best first by `by`. `lines`: collectives of a layout that was given.
    `estimates`: the estimator of their time, or None; `reason`: why there is none. `limit`: rows of the table, 0 for
    all.
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
    lines: list[Collective] | None
    estimates: Times | None
    reason: str
    limit: int

    @property
    def dtype(self) -> str:
        """Format of the weights."""
        return self.model.storage(self.given["dtype"]).name if self.recipe is None else self.recipe.dtype

    @property
    def shown(self) -> Sequence[Candidate]:
        """Layouts that fit; if none does, the others, the smallest first."""
        return self.ranked or self.found.larger

    @property
    def laws(self) -> dict[str, list[Candidate]]:
        """Layouts that fit, by the law of their estimate, "" without one; the best first."""
        return by_law(self.ranked)

    @property
    def first_by_law(self) -> dict[str, Candidate]:
        """The best layout by each law that has a name."""
        return {law: found[0] for law, found in self.laws.items() if law}

    @property
    def devices(self) -> str:
        """The number of devices in words."""
        return units.number_of(self.gpus, "device")

    @property
    def sections(self) -> list[Sequence[Candidate]]:
        """Layouts of the table, by law, then those without an estimate if rows are left; if none fits, the smallest."""
        laws, most = self.laws, self.limit or len(self.shown)
        if not laws:  # the larger ones are lazy
            return [self.found.larger[:most]]
        untimed = laws.pop("", [])
        sections = list[Sequence[Candidate]]()
        for number, found in enumerate(laws.values()):
            left = most - sum(map(len, sections))
            sections.append(found[: max(1, left // (len(laws) - number))])
        left = most - sum(map(len, sections))
        return [*sections, untimed[: max(0, left)]]

    def is_tight(self, of: Candidate) -> bool:
        """True for a training step that fits, but not with what the CUDA allocator reserves."""
        return self.recipe is not None and self.fit.is_tight(of.bytes)

    @property
    def some_tight(self) -> bool:
        """True if the table has such a step."""
        return self.lines is None and any(self.is_tight(of) for section in self.sections for of in section)

    @property
    def recomputes(self) -> set[str]:
        """Recomputation of the layouts of the table."""
        return {of.recompute for section in self.sections for of in section}

    @property
    def timed(self) -> list[Candidate]:
        """Layouts that fit and have an estimate of their time."""
        return [one for one in self.ranked if one.estimate is not None]

    @property
    def unit(self) -> str:
        """What time and bytes sent are counted per. A decode step has one new token of each sequence."""
        return "a step" if self.recipe is not None else "a decode step" if self.model.has_cache else "a pass"


def plan(
    model: LoadedModel,
    request: Request,
    *,
    gpus: int,
    fit: MemoryLimit,
    given: Mapping[str, Any],
    fewest: bool = False,
    recipe: Recipe | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    layout: Mesh | None = None,
    by: Order | None = None,
    limit: int | None = None,
) -> PlanReport:
    """Layouts of `gpus` devices that fit a model, or with a `recipe` its training step. The batch is that of all
    devices; `fewest`: for a training step, the fewest sequences that all layouts divide.

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
    work = selection.runnable(model, request)
    meshes = layouts_with(model, gpus, work.tokens, layout or Mesh(), train=recipe is not None)
    complete = layout is not None and layout.ranks == gpus
    batch = ""
    if fewest and recipe is not None:
        most = max(mesh.batch_shards * max(1, mesh.microbatches) for mesh in meshes) if meshes else 1
        request = replace(request, batch=most * recipe.gradient_accumulation)
        work = replace(work, batch=request.batch)
        batch = build.fewest_words(request, "for this layout" if complete else "that every layout can run")
    if recipe is not None:
        tried = (recipe.recompute,) if "recompute" in given else RECOMPUTE
        search = TrainingSearch(model, recipe, work, fit.usable, recompute=tried, least=by == "memory")
        found = search.result(meshes, given=complete)
    else:
        found = search_serving(model, work, meshes, fit.usable, dtype, width(dtypes(dtype, kv_dtype)[1]))
    if not found.counted:
        raise _uncounted(model, work, recipe, found, gpus, layout)
    estimates, reason = None, ""
    if by == "time" or (by is None and fit.device is not None):
        try:
            estimates = Times(model, work, fit, gpus, recipe, Deployment(dtype=dtype, kv_dtype=kv_dtype))
        except TfacctError as error:
            if by == "time":
                raise
            reason = error.message.removeprefix(f"{model.name}: ")
    by, ranked, reason = ranking(found, estimates, by, reason)
    best, lines = (ranked or found.larger)[0], None
    if complete and recipe is None:
        lines = serving_collectives(model, best.mesh, replace(work, batch=best.batch), dtype)
    elif complete:
        lines = search.collectives(best.mesh, best.batch, best.recompute)
    options = {name: value for name, value in given.items() if name not in ("recompute", "gradient_accumulation")}
    options |= {"dtype": dtype, "kv_dtype": kv_dtype}
    one = Plan(model, work, gpus, fit, recipe, options, by, found, ranked, lines, estimates, reason, limit)
    what = f"serving in {selection.format_name(model, dtype)}, {build.workload_words([model], request)}"
    if recipe is not None:
        precision, many = states.precision(replace(recipe, mesh=Mesh(fsdp=gpus))), recipe.gradient_accumulation
        same = replace(recipe, recompute=next(iter(one.recomputes))) if len(one.recomputes) == 1 else recipe
        what = f"a training step in {precision}, {build.workload_words([model], request, batch)}, {same.description}"
        what += ", no recomputation" if one.recomputes == {RECOMPUTE[0]} else ""
        what += f", {many:,} micro-batches" if many > 1 else ""
        what += f", tp_plan={layout.plan}" if layout is not None and layout.plan != Mesh().plan else ""
    facts = {**fit.facts, "devices": gpus, **selection.format_facts(model, dtype if recipe is None else recipe.dtype)}
    return build.report(
        PlanReport,
        [model],
        _table(one) if lines is None else comms.table(lines),
        [values_of(PlanReport, one, **facts)],
        title=f"{build.label(model)}: layouts of {units.number_of(gpus, 'device')}, {what}",
        answer=_answer(one) if lines is None else _explained(one),
        notes=lambda _: [*notes(NOTES, one), *([] if lines is None else _layout_notes(one, lines))],
        convention=f"memory and communication of one rank; {'' if one.timed else 'no time, '}no network topology",
        requests=[request],
        headline="fitting",
    )


def _uncounted(
    model: LoadedModel, work: Workload, recipe: Recipe | None, found: SearchResult, gpus: int, layout: Mesh | None
) -> UsageError:
    """Why no layout is counted: the recipe, a part of the model, FSDP, or the most frequent reason."""
    if layout is not None:
        why, instead = found.main_reason, ""
        if why is None:
            why = "the search does not include such layouts"
            instead = f"`tfacct {'memory' if recipe is None else 'train'}` counts one layout"
        elif work.batch != (even := rounded_up(work.batch, layout.batch_shards) * layout.batch_shards):
            instead = f"give a multiple: {option('batch', even)}"
        elif recipe is not None and (row := unsupported(model, replace(recipe, mesh=layout))) is not None:
            instead = row.instead
        return UsageError(f"{model.name}: {label(layout)} on {units.number_of(gpus, 'device')}: {why}", instead)
    reason, instead = None if recipe is None else refusal(model, recipe), ""
    if reason is None and gpus > 1 and (part := unsupported_part(model.architecture)):
        reason = f"a parallel layout does not support {part}"
    if reason is None and gpus > 1 and recipe is not None:
        row = unsupported(model, replace(recipe, mesh=Mesh(fsdp=gpus)))
        reason, instead = (None, "") if row is None else (row.reason, row.instead)
    none = f"{model.name}: no layout of {units.number_of(gpus, 'device')} is supported: {reason or found.main_reason}"
    if not reason or recipe is None:
        even = option("batch", -(-work.batch // gpus) * gpus)
        instead = "" if work.batch % gpus == 0 else f"give a multiple of {gpus:,}: {even}"
    return UsageError(none, instead)


# Layouts in words and as commands.


def _named(one: Candidate) -> str:
    """The layout and its recomputation: `tp=8 fsdp=8, recompute full`."""
    return _layout_of(one) if one.recompute == RECOMPUTE[0] else f"{_layout_of(one)}, recompute {one.recompute}"


def _layout_of(one: Candidate) -> str:
    """The layout in words, without the plan that all layouts share."""
    return label(replace(one.mesh, plan=Mesh().plan))


def _typed(one: Plan, command: str, of: Candidate) -> str:
    """A command about a layout."""
    sizes, count = sizes_of(of.mesh), one.gpus
    if one.recipe is None:  # one of the replicas, with its part of the batch
        sizes.pop("dp", None)
        count = ranks_of(replace(of.mesh, dp=1))
    elif sizes == {"fsdp": one.gpus}:  # the default layout of devices
        sizes = {}
    context = one.work.context
    given = {
        "train": one.recipe is not None and command != "train",
        "ctx": context if context % 1024 else f"{context // 1024}k",
        "source": None if one.work.source == (one.model.source or 0) else one.work.source,
        **one.given,
        "recompute": None if of.recompute == RECOMPUTE[0] else of.recompute,
        **sizes,
        "batch": of.batch if of.batch > 1 else None,
        "accumulate": of.times if of.times > 1 else None,
        "on": f"{count}x{one.fit.each}" if count > 1 else one.fit.each,
    }
    return _with_usable(one, f"tfacct {command} {build.typed_model(one.model)}{typed_options(given.items())}")


def _with_usable(one: Plan, command: str) -> str:
    """The command with the share and the reserve of the memory, if they were given."""
    return " ".join([command, *one.fit.options(training=one.recipe is not None)])


def _command(one: Plan, of: Candidate) -> str:
    """The command that reports the memory of a layout."""
    return _typed(one, "memory" if one.recipe is None else "train", of)


def _time_command(one: Plan, of: Candidate) -> str | None:
    """The command that estimates the time of a layout; None without an estimate."""
    if of.estimate is None:
        return None
    if one.recipe is not None:
        return _typed(one, "time", of)
    return _with_usable(one, f"tfacct time {build.typed_model(one.model)} {of.estimate.options}")


# The answer and the table.


def _answer(one: Plan) -> str:
    many, counted = len(one.ranked), one.found.counted
    if not many:
        smallest, usable = one.found.larger[0], one.fit.usable
        which = f"the smallest of {units.number_of(counted, 'layout')} of {one.devices} ({_named(smallest)})"
        over = f"{units.binary(smallest.bytes - usable)} more than the usable {one.fit.size}"
        return f"Does not fit: {which} needs {units.binary(smallest.bytes)}, {over}."
    if len(one.first_by_law) > 1:
        each = [f"under {law}: {_named(first)}, {_takes(one, first)}" for law, first in one.first_by_law.items()]
        return f"{many:,} layouts fit. Fastest {'; '.join(each)}."
    best = one.ranked[0]
    sentence = f"{_named(best)}, {_worth(one, best)}"
    if one.by == "sent" and (idle := _bubble(one, best)):
        sentence += f"; pipeline bubble {units.percent(idle)} of the computing time"
    fit, first = f"{units.number_of(many, 'layout')} fit{'s' if many == 1 else ''}", FIRST[one.by]
    fit += "; none has a time estimate" if one.reason else ""
    if one.by == "time" and len(one.timed) < many:
        first += " with a time estimate"
    return f"{fit}. {first}: {sentence}."


def _worth(one: Plan, of: Candidate) -> str:
    """By what the layouts are sorted: the time of a layout, its memory, or the bytes that it sends."""
    if one.by == "memory":
        return f"{units.binary(of.bytes)} per device"
    return f"{units.binary(of.sent)} sent {one.unit}" if one.by == "sent" else _takes(one, of)


FIRST = {"time": "Fastest", "memory": "Least memory", "sent": "Least communication"}
"""The first layout in words, by what layouts are sorted by."""


def _explained(one: Plan) -> str:
    """Memory, bytes sent and time of a layout that was given."""
    of = one.shown[0]
    where, usable = replace(one.fit, count=one.gpus).where, one.fit.usable
    named = _named(of) if of.recompute == RECOMPUTE[0] else f"{_named(of)},"
    if not one.ranked:
        return f"{named} does not fit {where}: each device needs {units.needed_and_usable(of.bytes, usable)}."
    takes = f" {one.unit}" if of.estimate is None else f", {_takes(one, of)}"
    idle = _bubble(one, of)
    bubbles = f" The pipeline bubble is {units.percent(idle)} of the computing time." if idle else ""
    needs = f"{units.binary(of.bytes)} of {units.binary(usable)}, {units.binary(of.sent)} sent{takes}"
    return f"{named} fits {where}: {needs}.{bubbles}"


def _takes(one: Plan, of: Candidate) -> str:
    """The estimated time of a layout, and the MFU of a training step that has one."""
    assert of.estimate is not None and one.estimates is not None
    takes = f"≈ {units.seconds(of.estimate.seconds)} {one.unit}"
    if one.recipe is None:
        return takes
    recipe = replace(one.recipe, mesh=of.mesh, recompute=of.recompute, gradient_accumulation=of.times)
    step = step_estimate(one.model, replace(one.work, batch=of.batch), recipe, one.fit, recipe.dtype)
    return f"{takes}{step.mfu_words}"


def _table(one: Plan) -> Table:
    """Layouts that fit, the best first; if none does, those that need least."""
    train = one.recipe is not None
    columns = (
        Column("layout", "layout"),
        Column("batch", "micro-batch × number", "dims", keys=("batch", "times"))
        if train
        else Column("batch", "batch", "count", drop=1),
        *([Column("recompute", "recompute", drop=3 if len(one.recomputes) == 1 else 0)] if train else []),
        Column("bytes", "GiB/GPU", "bytes", unit="GiB"),
        *([Column("tight", "")] if one.some_tight else []),
        Column("sent_bytes", "sent/GPU", "bytes", drop=0 if one.by == "sent" else 1),
        *([Column("bubble_ratio", "bubble", "share")] if any(_bubble(one, of) for of in one.shown) else []),
        *([Column("seconds", "≈ time", "seconds")] if one.timed else []),
        *([Column("timed_as", "fitted on", drop=2)] if len(one.first_by_law) > 1 else []),
    )
    return columns, tuple(tuple(_row(one, of) for of in section) for section in one.sections), ()


def _bubble(one: Plan, of: Candidate) -> Fraction | None:
    """Idle over computing time of the pipeline stages of a training step; None without a pipeline."""
    if one.recipe is None or of.mesh.pp == 1:
        return None
    return bubble(of.mesh, _micro_batches(one, of)[1])


def _micro_batches(one: Plan, of: Candidate) -> tuple[int, int]:
    """Sequences of a micro-batch on a rank, and micro-batches of a training step."""
    stages = 1 if of.mesh.pp == 1 or one.recipe is None else of.mesh.microbatches or of.batch
    return of.batch // stages, of.times * stages


def _row(one: Plan, of: Candidate) -> Row:
    batch = _micro_batches(one, of) if one.recipe is not None else of.batch
    shown = {"layout": _layout_of(of), "batch": batch, "bubble_ratio": _bubble(one, of)}
    return {**values_of(PlannedLayout, one, of), **shown, "tight": TIGHT if one.is_tight(of) else None}


# Notes.


def _errors(one: Plan) -> list[str]:
    """The measured error of the estimates; of a training step one sentence a law, unless they are the same."""
    if one.estimates is None or not one.timed:
        return []
    from tfacct.reports import estimates

    if one.recipe is None:
        return [estimates.error_note(one.estimates.placed[one.timed[0].mesh.tp])]
    errors = {law: estimates.step_error(*_step_of(one, of)) for law, of in one.first_by_law.items()}
    if len({*errors.values()}) == 1:
        return [f"Estimate. {next(iter(errors.values()))}"]
    return [f"Estimate under {law}. {error}" for law, error in errors.items()]


def _step_of(one: Plan, of: Candidate) -> tuple[str, Device, Link | None, str]:
    """What the error of a layout's training step depends on."""
    assert one.estimates is not None and one.recipe is not None
    device, dtype = one.estimates.device, one.recipe.dtype
    trained = Trained(one.work, of.mesh, dtype=dtype, frozen=one.recipe.lora is not None)
    link = None if one.gpus == 1 else device.link(one.gpus)
    return steps_alike(one.model, device, trained), device, link, dtype


def _other_law(one: Plan) -> str:
    """The command of the fastest layout by the second law: times by two laws are not compared."""
    firsts = list(one.first_by_law.values())
    if len(firsts) < 2:
        return ""
    both = f"Times under {' and '.join(one.first_by_law)} are fitted to different runs: measure both"
    return f"{both}. Memory of {_layout_of(firsts[1])}: {_command(one, firsts[1])}"


def _of_first(one: Plan, what: str) -> str:
    """Memory or time of the first layout, or of the one that was given."""
    return f"Its {what}" if one.lines is not None else f"{what.capitalize()} of the first layout"


def _some(one: Plan, which: Callable[[Candidate], bool]) -> bool:
    return any(map(which, one.shown[:AT_MOST]))


def _tight(one: Plan) -> str | None:
    """What may run out of memory: rows with a sign, or the layout that was given."""
    if one.some_tight:
        return TIGHT
    return "It" if one.lines is not None and one.is_tight(one.shown[0]) else None


def _sends_again(one: Plan) -> bool:
    """True if recomputation may send again what is not counted."""
    recipe = one.recipe
    if recipe is None:
        return False
    return _some(one, lambda of: replace(recipe, recompute=of.recompute, mesh=of.mesh).has_uncounted_sends)


def _other_tp_plan(one: Plan) -> str:
    """What Megatron-LM's plan would change."""
    if one.lines is not None or one.recipe is None or one.recipe.lora is not None:
        return ""
    if not _some(one, lambda of: of.mesh.tp > 1 and of.mesh.plan == "torch"):
        return ""
    other = f"With {option('tp_plan', 'megatron')}, layouts with sp need less memory for activations"
    return f"tp follows torch's tensor-parallel plan. {other}, layouts without sp send less."


def _skipped(one: Plan) -> str:
    """How many layouts were skipped, and why."""
    many, why = len(one.found.skipped), one.found.main_reason
    if many > 1:
        return f"{many:,} layouts were skipped, mostly because {why}."
    return f"1 layout was skipped because {why}." if many else ""


def _schedule(one: Plan) -> str:
    """The option for a schedule with a smaller bubble, of layouts with pipeline stages."""
    staged = any(_bubble(one, of) and of.mesh.schedule == "1f1b" for of in one.shown)
    return f"{option('schedule', 'interleaved')} makes it smaller." if staged else ""


NOTES: tuple[NoteRow, ...] = (
    NoteRow("command", 1, lambda one: f"{_of_first(one, 'memory')}: {_command(one, one.shown[0])}"),
    NoteRow(
        "gathered",
        1,
        lambda one: one.recipe is None and gathers_heads(one.model) and _some(one, lambda of: of.mesh.tp > 1),
        "The cache is sharded by heads, as in vLLM. Bytes sent are of transformers' plan, which gathers heads.",
    ),
    NoteRow("allocator", 1, _tight, f"{{}} may run out of memory: {model_notes.RESERVED}"),
    NoteRow("recomputed_sends", 1, _sends_again, "Not included: bytes that recomputed layers send again."),
    NoteRow("laws", 1, _other_law),
    NoteRow("error", 1, lambda one: len(one.first_by_law) < 2 and _errors(one)),
    NoteRow("tp_plan", 1, _other_tp_plan),
    NoteRow("no_time", 1, lambda one: one.reason, "No time estimate: {}."),
    NoteRow("skipped", 1, _skipped),
    NoteRow("files", 1, lambda one: one.recipe is None and model_notes.files_notes([one.model], one.given["dtype"])),
    NoteRow("error", 2, lambda one: len(one.first_by_law) > 1 and _errors(one)),
    NoteRow("bubble", 2, _schedule, "bubble: idle time as a share of the computing time, in a 1F1B schedule. {}"),
    NoteRow("usable", 2, lambda one: one.fit.notes),
    NoteRow(
        "cache",
        2,
        lambda one: (
            one.recipe is None
            and model_notes.cache_notes([one.model], dtypes(one.given["dtype"], one.given["kv_dtype"])[1])
        ),
    ),
    NoteRow("range", 2, lambda one: one.recipe is None and model_notes.range_notes([one.model], one.given["dtype"])),
    NoteRow(
        "no_estimate",
        2,
        lambda one: one.timed and len(one.ranked) - len(one.timed),
        "Layouts without a time estimate ({:,}) come last, sorted by bytes sent.",
    ),
    NoteRow("time", 2, lambda one: one.timed and f"{_of_first(one, 'time')}: {_time_command(one, one.timed[0])}"),
    NoteRow("links", 2, lambda one: [link.words for of in one.timed[:1] for link in of.links]),
    NoteRow(
        "batch",
        3,
        lambda one: one.recipe is not None,
        "micro-batch × number: sequences of a micro-batch on a rank × micro-batches per optimizer step. sent: per"
        " optimizer step; DDP reduces gradients once per step, sharded layouts once per micro-batch.",
    ),
    NoteRow(
        "idle",
        3,
        lambda one: (one.recipe is None or not one.timed) and _some(one, lambda of: of.mesh.pp > 1),
        "The order ignores the pipeline bubble.",
    ),
    NoteRow("routing", 3, lambda one: _some(one, lambda of: of.mesh.ep > 1), ROUTING),
)


def _layout_notes(one: Plan, lines: list[Collective]) -> list[Note]:
    """Notes on the collectives of a layout."""
    of = one.shown[0]
    sent = RankCollectives(replace(one.work, batch=of.batch), lines, 0, 0, [of.sent], [0])
    about = comms.Comms(one.model, sent, of.mesh, one.recipe is not None)
    return notes((row for row in comms.NOTES if row.key not in ("stored", "stages", "routing")), about)
