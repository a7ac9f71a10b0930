"""Memory of a training step: its phases, its saved activations, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import selection
from tfacct.loading.memory_limit import ExactFit, MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, NoteRow, Row, Table, Tick, notes, unwatched
from tfacct.parallel.collectives import sent_over
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import bubble, microbatches, waits_facts
from tfacct.reports import build, ranks
from tfacct.reports.model_notes import RESERVED, ROOM, TIGHTLY
from tfacct.training import states
from tfacct.training.bounds import accuracy, decides
from tfacct.training.exact import ExactStep, exact
from tfacct.training.lora import Lora, routed, unpacked_elements
from tfacct.training.memory import (
    FLOPS_ALONE,
    LONGEST,
    TrainFit,
    TrainingMemory,
    WholeStep,
    changes,
    fits_in,
    largest_batch,
    largest_context,
    training_memory,
    what_fits,
    whole_step,
)
from tfacct.training.optimizers import optimizer
from tfacct.training.phases import FORWARD_END, LOSS, Phase
from tfacct.training.recipe import FP32, NF4, Recipe, batch_words, micro_batches, size_facts
from tfacct.training.saved_lines import TrainLine, by_part, saved_lines
from tfacct.training.selection import of_own_size, trainable
from tfacct.training.unsupported import reads_images

if TYPE_CHECKING:
    from tfacct.timing.step_estimate import StepEstimate

By = Literal["phase", "tensor", "part"]


of_phase: Keys[[Phase]] = Keys()
of_any: Keys[[Step | Measured]] = Keys()
of_step: Keys[[Step]] = Keys()
of_measured: Keys[[Measured]] = Keys()


class TrainPhase(Object):
    """Memory of one phase of a training step."""

    phase: str = of_phase(lambda one: one.name)
    operation: str | None = of_phase(lambda one: one.operation or None)
    weights_bytes: int = of_phase(lambda one: one.weights)
    optimizer_bytes: int = of_phase(lambda one: one.optimizer_state)
    gradients_bytes: int = of_phase(lambda one: one.gradients)
    saved_bytes: int = of_phase(lambda one: one.saved)
    temporary_bytes: int = of_phase(lambda one: one.temporary)
    gathered_bytes: int = of_phase(lambda one: one.gathered)
    total_bytes: int = of_phase(lambda one: one.total)


class SavedByModule(TypedDict):
    """Bytes that modules of a class save for the backward pass, all layers together."""

    module: str
    bytes: int


class StepReport(build.ModelReport):
    """Bytes of a training step, and its recipe."""

    workload: build.WorkloadFacts = of_any(lambda one: selection.workload_facts(one.work, dtype=one.recipe.dtype))
    dtype: str = of_any(lambda one: one.recipe.dtype)
    optimizer: str = of_any(lambda one: one.recipe.optimizer)
    recompute: str = of_any(lambda one: one.recipe.recompute)
    attention: Literal["sdpa", "eager"] = of_any(lambda one: one.recipe.attention)
    loss: Literal["whole", "chunked"] = of_any(lambda one: one.recipe.loss)
    weights_dtype: str = of_any(lambda one: one.recipe.weights_format)
    lora: str | None = of_any(lambda one: one.recipe.lora)
    weights_bytes: int = of_any(lambda one: one.memory.weights_bytes)
    optimizer_bytes: int = of_any(lambda one: one.memory.optimizer_bytes)
    gradients_bytes: int = of_any(lambda one: one.memory.gradients_bytes)
    saved_bytes: int = of_any(lambda one: one.memory.saved_bytes)
    peak_bytes: int = of_any(lambda one: one.memory.peak_bytes)
    peak_phase: str = of_any(lambda one: one.memory.peak_phase)
    exact: bool


class TrainReport(StepReport):
    """Bytes of a training step by formula, on one device or on one rank of a parallel layout."""

    _line = TrainLine

    exact: bool = of_step(lambda one: one.memory.exact)
    micro_batch_size: int
    gradient_accumulation: int
    global_batch_size: int
    master_weights: Literal["fp32"] | None = of_step(lambda one: one.recipe.master_weights)
    gradient_dtype: str = of_step(lambda one: one.recipe.gradient_dtype or one.recipe.trained_dtype)
    lora_adapters: Lora | None = of_step(lambda one: one.lora)
    master_weights_bytes: int = of_step(lambda one: one.memory.step.optimizer.master_weights)
    packing: bool = of_step(lambda one: one.recipe.packing)
    offload: str | None = of_step(lambda one: one.recipe.offload)
    host_bytes: int = of_step(lambda one: one.memory.host.total)
    moved_bytes: int = of_step(lambda one: one.memory.host.moved)
    peak_least_bytes: int = of_step(lambda one: one.memory.least)
    error_bound: float | None = of_step(lambda one: one.memory.bound and one.memory.bound.share)
    mesh: build.MeshFacts | None
    sent_bytes: int | None = of_step(lambda one: None if one.recipe.mesh is None else sum(one.sent_over.values()))
    stage: int | None
    in_flight: int | None
    microbatches: int | None
    bubble: str | None
    bubble_ratio: float | None
    whole: WholeStep | None
    phases: list[TrainPhase] = of_step(lambda one: [values_of(TrainPhase, each) for each in one.memory.phases])
    fit: TrainFit | None = of_step(lambda one: one.fits)
    lines: list[dict[str, Any]] = of_step(lambda one: one.saved)


class ExactTrainReport(StepReport):
    """Bytes of a training step, measured by running the model's class on the meta device."""

    _name = "train-exact"
    _line = SavedByModule

    exact: bool = of_measured(lambda _: True)
    class_name: str = of_measured(lambda one: one.memory.class_name)
    versions: dict[str, str] = of_measured(lambda one: one.memory.versions)
    seconds: float = of_measured(lambda one: one.memory.seconds)
    formula_saved_bytes: int | None = of_measured(lambda one: one.formula and int(one.formula.saved_bytes))
    formula_peak_bytes: int | None = of_measured(lambda one: one.formula and int(one.formula.peak.total))
    formula_error: float | None = of_measured(lambda one: None if one.error is None else float(one.error))
    formula_reason: str | None = of_measured(lambda one: one.no_formula)
    fit: ExactFit | None = of_measured(lambda one: one.limit and {**one.limit.facts, "fits": one.fits})
    lines: list[dict[str, Any]] = of_measured(
        lambda one: [{"module": module, "bytes": size} for module, size in one.memory.saved_by.items()]
    )


@dataclass(frozen=True)
class Step:
    """One model's training step. `fits`: what fits the memory `limit` of a device, as in the JSON."""

    memory: TrainingMemory
    fits: TrainFit | None
    limit: MemoryLimit | None

    @property
    def work(self) -> Workload:
        """The sequences of a micro-batch."""
        return self.memory.work

    @property
    def recipe(self) -> Recipe:
        """How the model is trained."""
        return self.memory.recipe

    @property
    def mesh(self) -> Mesh:
        """The parallel layout; with one rank if there is none."""
        return self.recipe.mesh or Mesh()

    @property
    def lora(self) -> dict[str, Any] | None:
        """The adapters, as in the JSON."""
        return None if self.recipe.lora is None else values_of(Lora, self.memory.model, self.recipe)

    @cached_property
    def saved(self) -> list[TrainLine]:
        """Tensors saved for the backward pass."""
        return saved_lines(self.memory)

    @cached_property
    def sent_over(self) -> dict[str, int]:
        """Bytes that the rank sends, by axis of the layout and collective."""
        from tfacct.training.layouts import collectives

        return sent_over(collectives(self.memory.model, self.memory.work, self.recipe))

    @cached_property
    def lever(self) -> dict[str, Any] | None:
        """The change that lowers the peak most and costs FLOPs alone; None if it frees little."""
        found = min(changes(self.memory, None, FLOPS_ALONE), key=lambda change: int(change["peak_bytes"]), default=None)
        return found if found and found["freed_bytes"] >= LEAST_GAIN * int(self.memory.peak.total) else None

    @cached_property
    def estimate(self) -> StepEstimate | TfacctError | None:
        """The estimated time of a step that fits a device, or why there is none."""
        limit, recipe = self.limit, self.recipe
        if limit is None or limit.device is None or self.fits is None or not self.fits["fits"]:
            return None
        from tfacct.timing.step_estimate import step_estimate

        try:
            return step_estimate(self.memory.model, self.work, recipe, limit, recipe.dtype)
        except TfacctError as error:
            return error

    @property
    def saved_bytes(self) -> int:
        """Bytes of these; on a pipeline rank of all micro-batches in flight."""
        return int(self.memory.saved_bytes)

    def with_recipe(self, **fields: Any) -> TrainingMemory | None:
        """The step with other fields of the recipe; None if it is not supported."""
        try:
            return training_memory(self.memory.model, self.work, replace(self.recipe, **fields))
        except TfacctError:
            return None

    @property
    def does_not_fit(self) -> bool:
        """True if the peak is larger than the limit."""
        return self.limit is not None and self.memory.peak.total > self.limit.usable


@ranks.in_devices
def train(
    models: Sequence[LoadedModel], request: Request, recipe: Recipe, *, fit: MemoryLimit | None = None, by: By = "phase"
) -> TrainReport:
    """Memory of a training step, as the class of transformers runs it. `fit`: the memory of a device. `by`: rows of the
    table. Raises TfacctError."""
    recipe = recipe.checked()
    models, left_out = trainable(models, recipe)
    models, of_other_sizes = of_own_size(models, request)
    recipe = recipe.for_models(models)
    several = len(models) > 1
    every = [training_memory(model, selection.runnable(model, request), recipe) for model in models]
    if several and by != "phase":
        raise UsageError(f"{option('by', by)} goes with one MODEL")
    fits = None if several or fit is None else what_fits(every[0], fit)
    steps = [Step(each, fits, fit) for each in every]
    facts = [_facts(each) for each in steps]
    what = "Training steps" if several else f"{build.label(models[0])}: a training step"
    what += "" if recipe.mesh is None else f" on one of {recipe.mesh.ranks:,} ranks"
    workload = build.workload_words(models, request, batch_words(steps[0].memory.work, recipe))
    changed = [] if several or by != "phase" else helpful_changes(steps[0])
    if fit is not None and changed:
        table = change_table(changed, fit)
    else:
        table = table_of_models(steps, facts) if several else TABLES[by](steps[0])
    report = build.report(
        TrainReport,
        models,
        table,
        facts,
        title=f"{what} in {states.precision(recipe)}, {workload}, {recipe.description}",
        answer=_answer_for_several(steps) if several else _answer(steps[0]),
        notes=lambda at: notes(NOTES, steps[at][0]) if len(steps[at]) == 1 else notes(NOTES_OF_SEVERAL, steps),
        convention=recipe.counted,
        requests=[request],
        skipped=[*left_out, *of_other_sizes],
        headline="peak_bytes",
    )
    if several or by != "phase" or changed:
        return report
    columns, rows, totals = all_phases_table(every[0])
    return replace(report, data=replace(report, columns=columns, sections=rows, total_rows=totals))


# The answer.

LOSSES = ("loss, forward", LOSS)
WHEN = {FORWARD_END: "at the end of the forward pass", **dict.fromkeys(LOSSES, "while computing the loss")}
"""Phases in a sentence, where their names do not follow from the phase."""


def _answer_for_several(steps: Sequence[Step]) -> str:
    limit = steps[0].limit
    if limit is not None:
        return ranks.fitting_models(limit, steps[0].recipe.mesh, [fits_in(each.memory, limit) for each in steps])
    ends = (side((each.memory for each in steps), key=lambda each: each.peak.total) for side in (min, max))
    small, large = (f"{_estimate(end)}{units.binary(end.peak.total)} ({end.model.name})" for end in ends)
    return f"Peak: from {small} to {large}."


def when(phase: str, *, of_class: bool = False) -> str:
    """A phase in a sentence: `in the backward pass of layer 0`. `of_class`: its place is a module."""
    if phase in WHEN:
        return WHEN[phase]
    place, _, direction = phase.rpartition(", ")
    if not place:
        return f"during the {phase}"
    article = "" if of_class or place[-1].isdecimal() else "the "
    return f"in the {direction} pass of {article}{place.replace(', ', ' ')}"  # `encoder, layer 0`


def _answer(step: Step) -> str:
    """Whether the step fits, its peak, and the phase of the peak."""
    one, limit, fits = step.memory, step.limit, step.fits
    phase = when(one.peak.name)
    if limit is None or fits is None:
        return f"Peak: {_peak(one)}, {phase}."
    where = ranks.fitting_words(limit, one.recipe.mesh)
    if one.peak.total <= limit.usable:
        of = _peak(one) if limit.device is None else _peak(one, limit.usable)
        words = f"Fits{' tightly' if _close(step) else ''} {where}: peak {of}, {phase}."
    else:
        weights, needed = int(one.peak.weights), _peak(one)
        needed += "" if limit.device is None else f", and {units.binary(limit.usable)} is usable"
        needs = f"{'it' if one.recipe.mesh is None else 'each rank'} needs {needed}"
        if one.work.context == one.model.context:  # perhaps because no other is given
            needs = f"at context {one.work.context:,}, {needs}"
        alone = f"; the weights alone need {units.binary(weights)}" if weights > limit.usable else ""
        words = f"{'Does' if one.least > limit.usable else 'May'} not fit {where}: {needs}{alone}."
    if not decides(one.bound, int(one.peak.total), limit.usable):
        return words
    how = "" if one.recipe.mesh is not None else f": check with {option('exact', True)}"
    return f"{words} The difference is within the error bound{how}."


def _peak(one: TrainingMemory, usable: int | None = None) -> str:
    """The peak, and the usable bytes: a range if the order of the parameters decides, `≈` if it is an estimate."""
    ends = int(one.least), int(one.peak.total)
    unit = units.binary_unit(usable or ends[1])
    least, most = (units.in_binary_unit(end, unit) for end in ends)
    peak = f"{_estimate(one)}{most}" if least == most else f"between {least} and {most}"
    return f"{peak} {unit}" if usable is None else f"{peak} of {units.in_binary_unit(usable, unit)} {unit}"


def _estimate(one: TrainingMemory) -> str:
    return "" if one.exact else "≈ "


def _facts(of: Step) -> dict[str, Any]:
    """Keys of `TrainReport`."""
    layout, mesh, stage = dict[str, Any](), of.recipe.mesh, of.memory.step.stage
    if mesh is not None:
        layout = {"mesh": values_of(build.MeshFacts, mesh), "whole": whole_step(of.memory)}
    if mesh is not None and stage is not None:
        times = microbatches(mesh, of.work.axes(), train=True)
        layout |= {"stage": stage.rank + 1, "in_flight": stage.in_flight, **waits_facts(mesh, times, train=True)}
    return values_of(TrainReport, of, **size_facts(of.work, of.recipe), **layout)


# Tables.


def all_phases_table(one: TrainingMemory) -> Table:
    """All phases that can be the peak, for programs."""
    rows = tuple({**values_of(TrainPhase, each), "peak": "peak" if each is one.peak else None} for each in one.phases)
    return tuple(Column(key, key) for key in rows[0]), (rows,), ()


PHASE_COLUMNS = {
    "weights_bytes": "weights",
    "optimizer_bytes": "optimizer",
    "gradients_bytes": "gradients",
    "saved_bytes": "activations",
    "temporary_bytes": "temp.",
    "total_bytes": "total",
}
"""Labels of the parts of a phase. Gathered parameters are temporary memory there."""


def _phase_row(phase: Phase) -> dict[str, Any]:
    merged = phase._replace(temporary=phase.temporary + phase.gathered, gathered=0)
    return {key: value or None for key, value in values_of(TrainPhase, merged).items()}


def phase_table(step: Step) -> Table:
    """The peak, the ends of the forward pass and of the step, and the first and the last layer of each stack."""
    one = step.memory
    unit = units.binary_unit(int(one.peak.total))
    stacks = (list(stack) for layers, stack in groupby(one.phases, lambda each: each.layer is not None) if layers)
    shown = [one.peak, one.phases[-1], *(end for stack in stacks for end in (stack[0], stack[-1]))]
    rows = tuple(_phase_row(each) for each in one.phases if each in shown or each.name in (FORWARD_END, LOSS))
    rank = "rank" if step.limit is None or step.limit.device is None else "GPU"
    where = "in each phase" if one.recipe.mesh is None else f"on each {rank}"
    parts = (Column(key, label, "bytes", empty="–", unit=unit) for key, label in PHASE_COLUMNS.items())
    return (Column("phase", f"{unit} {where}"), *parts), (rows,), ()


def _operations(names: Sequence[str]) -> str:
    """Operations in short: `attn.q_proj, k_proj, v_proj`."""
    short = (paths.short(name).removesuffix(".weight").rpartition(".") for name in names)
    each = (f"{module}.{', '.join(name[2] for name in of)}" for module, of in groupby(short, lambda name: name[0]))
    return ", ".join(each).replace(", .", ", ").lstrip(".")


def tensor_table(step: Step) -> Table:
    """Every saved tensor."""
    columns = (
        Column("path", "tensor"),
        Column("axes", "axes", "spec", drop=3),
        Column("dtype", "dtype", drop=2),
        Column("count", "count", "count", drop=2),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share", drop=4),
        Column("saved_for", "saved for", drop=1),
    )
    total = sum(line["bytes"] for line in step.saved)
    rows: list[Row] = [
        {
            **{key: line[key] for key in ("axes", "dtype", "count", "bytes")},
            "path": paths.short(line["path"]),
            "share": Fraction(line["bytes"], total),
            "saved_for": _operations(line["saved_for"]),
        }
        for line in step.saved
    ]
    return columns, (tuple(rows),), ({"path": "saved", "bytes": total, "share": Fraction(1)},)


def _share_table(key: str, label: str, sizes: Mapping[str, int], total: str) -> Table:
    """Sizes by name, with their shares."""
    columns = (Column(key, label), Column("bytes", "bytes", "bytes"), *build.SHARES)
    saved = sum(sizes.values())
    rows = tuple(build.with_share({key: name, "bytes": size}, size, saved) for name, size in sizes.items())
    return columns, (rows,), ({key: total, "bytes": saved, "share": Fraction(1)},)


TABLES: Mapping[str, Callable[[Step], Table]] = {
    "phase": phase_table,
    "tensor": tensor_table,
    "part": lambda step: _share_table("part", "part", by_part(step.saved), "saved"),
}


def table_of_models(steps: Sequence[Step], facts: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each model: its peak, and the phase."""
    estimated, limit = not all(each.memory.exact for each in steps), steps[0].limit
    columns = (
        Column("model", "model"),
        Column("keys", "context", "count", drop=1),
        Column("weights_bytes", "weights", "bytes", drop=2),
        Column("optimizer_bytes", "optimizer state", "bytes", drop=2),
        Column("saved_bytes", "activations", "bytes", drop=2),
        *((Column("estimated", ""),) if estimated else ()),
        Column("peak_bytes", "peak", "bytes"),
        Column("peak_phase", "peak phase", drop=1),
        *((Column("fits", ""),) if limit is not None else ()),
    )
    rows: list[Row] = [
        {
            **fact,
            "model": build.label(step.memory.model),
            "keys": step.memory.work.context,
            "estimated": None if step.memory.exact else "≈",
            "fits": limit.fits(int(step.memory.peak.total)) if limit and fits_in(step.memory, limit) else None,
        }
        for step, fact in zip(steps, facts, strict=True)
    ]
    return columns, (tuple(rows),), ()


# What would make a step fit.


def helpful_changes(step: Step) -> list[dict[str, Any]]:
    """Changes that lower the peak as it is printed, or with which a step fits, without those of which a part does as
    much."""
    found = [{"set": {}, "peak_bytes": step.memory.peak.total, "fits": not step.does_not_fit}]
    for change in [] if step.fits is None else step.fits["changes"]:
        peak = units.binary(int(change["peak_bytes"]))
        parts = (one for one in found if one["set"].items() <= change["set"].items() and one["fits"] == change["fits"])
        if all(units.binary(int(one["peak_bytes"])) != peak for one in parts):
            found.append(change)
    return found[1:]


def change_table(changed: Sequence[Mapping[str, Any]], limit: MemoryLimit) -> Table:
    """What would make a step fit."""
    flops = any(change["flops_ratio"] is not None for change in changed)
    images = any("largest_batch" in change for change in changed)
    most = ("largest_batch", "most images") if images else ("largest_context", "longest context")
    columns = (
        Column("set", "change"),
        Column("peak_bytes", "peak" if all(change["exact"] for change in changed) else "≈ peak", "bytes"),
        Column("freed_bytes", "frees", "bytes", drop=2),
        *([Column("flops", "more FLOPs", "share", empty="–")] if flops else []),
        Column(*most, "count", empty="–"),
        Column("fits", ""),
    )
    rows: tuple[Row, ...] = tuple(
        {
            **{key: change[key] for key in ("peak_bytes", "freed_bytes", most[0])},
            "flops": None if change["flops_ratio"] in (None, 1) else change["flops_ratio"] - 1,
            "set": " ".join(option(name, value) for name, value in change["set"].items()),
            "fits": limit.fits(change["peak_bytes"]),
        }
        for change in changed
    )
    return columns, (rows,), ()


# Notes.

LEAST_GAIN = Fraction(1, 20)
"""Share of the peak from which on a change is named that lowers it."""


def _sizes(named: Mapping[str, int], largest: int) -> str:
    """Sizes with their names, in the unit of the largest."""
    unit = units.binary_unit(largest)
    return ", ".join(f"{name} {units.in_binary_unit(int(size), unit)}" for name, size in named.items())


def _typed(change: Mapping[str, Any]) -> str:
    """A change as it is typed: `--qlora --recompute full`."""
    fields = dict(change["set"])
    if fields.get("weights_dtype") == NF4:
        others = {name: value for name, value in fields.items() if name not in ("weights_dtype", "lora")}
        fields = {"qlora": True, **others}
    return " ".join(option(name, value) for name, value in fields.items())


def _change_that_fits(step: Step) -> str | None:
    """The cheapest change with which the step fits, also with what the allocator reserves, or else the cheapest with
    nearly the lowest peak; or that none is enough."""
    found = helpful_changes(step)
    if not found or step.limit is None:
        return None
    fitting = [change for change in found if change["fits"]]
    if not fitting:
        none = "None of these changes is enough."
        others = spelled("`tfacct plan` with --train tries", "plan(train=True) tries")
        return none if step.recipe.mesh is None else f"{none} {others} other layouts."
    low = (1 + LEAST_GAIN) * min(int(change["peak_bytes"]) for change in fitting)
    roomy = [change for change in fitting if not step.limit.is_tight(change["peak_bytes"])]
    best = next(iter(roomy), next(change for change in fitting if change["peak_bytes"] <= low))
    return f"Try {_typed(best)} ({'' if best['exact'] else '≈ '}{units.binary(best['peak_bytes'])})."


def _some_tightly(step: Step) -> bool:
    """True if the table has a change with which the step fits, but not with what the allocator reserves."""
    limit = step.limit
    return limit is not None and any(limit.is_tight(change["peak_bytes"]) for change in helpful_changes(step))


def _without_recompute(step: Step) -> str | None:
    """The peak without recomputation, of a step with it."""
    recompute = step.recipe.recompute
    without = None if recompute == "none" else step.with_recipe(recompute="none")
    if without is None:
        return None
    return f"Without {option('recompute', recompute)}, the peak is {_peak(without)}."


def _lever(step: Step) -> str:
    """The change that lowers the peak most, with its saved activations."""
    found = step.lever
    if found is None or step.does_not_fit:
        return ""
    changed, unit = replace(step, memory=found["memory"]), units.binary_unit(step.saved_bytes)
    saved, less = (units.in_binary_unit(each.saved_bytes, unit) for each in (step, changed))
    activations = "" if saved == less else f" (saved activations {saved} → {less} {unit})"
    price = f" for {found['costs']}" if found["costs"] else ""
    return f"{_typed(found)} lowers the peak to {_peak(changed.memory)}{activations}{price}."


def _no_time(step: Step) -> str:
    """Why a step that fits a device has no estimated time; nothing if it has one."""
    found = step.estimate
    why = found.message.removeprefix(f"{step.memory.model.name}: ") if isinstance(found, TfacctError) else ""
    return why and f"No time estimate: {why}."


def _time(step: Step) -> str | None:
    """The estimated time of a step that fits a device."""
    found, recipe = step.estimate, step.recipe
    if found is None or isinstance(found, TfacctError):
        return None
    interval = f" (80% interval {units.time_range(found.interval)})" if found.interval else ""
    error = "" if found.interval else "; the error is not known"
    error += "; the adapters' own matmuls are not included" if recipe.lora else ""
    rate = f"{found.rate:,.0f} tokens/s per GPU{found.mfu_words}"
    return f"≈ {units.seconds(found.parts.seconds)} a step{interval}: {rate}{error}."


def _lora_saves_more(step: Step) -> str | None:
    """LoRA next to full fine-tuning, if it saves more."""
    recipe = step.recipe
    weights = recipe.weights_dtype if recipe.autocast else None
    full = step.with_recipe(lora=None, adapter_dtype=FP32, lora_dropout=0.0, weights_dtype=weights)
    if full is None or step.saved_bytes <= full.saved_bytes:
        return None
    sizes = f"{units.binary(step.saved_bytes)} instead of {units.binary(int(full.saved_bytes))}"
    casts = recipe.adapter_dtype != recipe.dtype and not recipe.autocast
    other = f" fp32 adapters copy their inputs to fp32: try {option('adapter_dtype', recipe.dtype)}." if casts else ""
    return f"LoRA needs more memory for saved activations than full fine-tuning, {sizes}.{other}"


def _packed(step: Step) -> str:
    tokens = step.recipe.runs(step.work).tokens
    flash = f"flash attention needs no mask: count it with {option('batch', 1)} {option('ctx', tokens)}"
    return f"One row of {tokens:,} tokens with a mask between sequences; {flash}."


def _scores(step: Step) -> str:
    """The peak with eager attention, if most of what it saves is attention scores; empty otherwise."""
    by_default = step.recipe.attention == "sdpa" and not step.does_not_fit
    eager = step.with_recipe(attention="eager") if by_default else None
    if eager is None or eager.saved_bytes <= 2 * step.saved_bytes:
        return ""
    return f" sdpa saves no attention scores; with {option('attention', 'eager')}, the peak is {_peak(eager)}."


def _saved(step: Step) -> str:
    """Saved bytes, the three parts with most, and scores that sdpa does not save."""
    parts = sorted(by_part(step.saved).items(), key=lambda part: -part[1])
    more = ", …" if len(parts) > 3 else ""
    sizes = f"{_sizes(dict(parts[:3]), step.saved_bytes)}{more}"
    return f"Saved for backward: {units.binary(step.saved_bytes)} ({sizes}).{_scores(step)}"


def _adapters(step: Step) -> str:
    lora = step.lora
    if lora is None:
        return ""
    size = f"{lora['params']:,} parameters, {units.binary(lora['bytes'])}"
    return f"Adapters: rank {lora['rank']} in {lora['dtype']}, {size}. Other weights are frozen."


def _unquantized(step: Step) -> str:
    """Weights that 4-bit LoRA leaves in 16 bits in a model with experts."""
    wide = units.binary(2 * unpacked_elements(step.memory.model))
    return f"bitsandbytes does not quantize routed experts: {wide} of the weights stay in {step.recipe.dtype}."


def _prepared(step: Step) -> str:
    """What peft's preparation of 4-bit weights adds."""
    more = units.binary(2 * unpacked_elements(step.memory.model))
    also = "" if step.recipe.recompute == "full" else f", and it turns on {option('recompute', 'full')}"
    return f"Not included: peft's prepare_model_for_kbit_training casts 16-bit weights to fp32 (+{more}){also}."


def _sent(step: Step) -> str:
    """What a rank sends; nothing on one device."""
    if step.recipe.mesh is None:
        return ""
    over = step.sent_over
    whose = "The busiest rank sends" if step.mesh.pp > 1 else "Each rank sends"
    again = "; bytes that recomputed layers send again are not included" if step.recipe.has_uncounted_sends else ""
    size = sum(over.values())
    by = f" ({_sizes(over, size)})" if len(over) > 1 else ""
    return f"{whose} {units.binary(size)} per step{by}{again}."


def buckets(step: Step) -> str | None:
    """DistributedDataParallel's gradient buckets, if they are a large part of the peak; under ZeRO, that none are
    counted."""
    mesh, counted = step.mesh, int(step.memory.step.buckets)
    if mesh.dp > 1 and mesh.zero:
        return "Not included: gradient buckets, which are as large as the gradients under torch's DDP."
    if counted < LEAST_GAIN * int(step.memory.peak.total):
        return None
    return f"The peak includes {units.binary(counted)} of DDP's gradient buckets."


def _experts(step: Step) -> str:
    mesh, routing = step.mesh, "routing is assumed even"
    if mesh.ep == 1:
        return ""
    if mesh.imbalance != 1:
        routing = f"the fullest one receives {float(mesh.imbalance):g} × the mean number of tokens"
    return f"A rank has {ranks.expert_shares(step.memory.model, mesh.ep)}; {routing}."


def _largest(step: Step) -> str | None:
    """The largest batch and the longest context that fit."""
    one, limit = step.memory, step.limit
    if step.fits is None or limit is None:
        return None

    def words(largest: Callable[..., int]) -> str:
        most, roomy = (largest(one, size, one.recipe) for size in (limit.usable, limit.roomy))
        return ("any" if most == LONGEST else f"{most:,}") + (f" ({roomy:,} {ROOM})" if roomy < most else "")

    where = " on each data-parallel rank" if step.mesh.batch_shards > 1 else ""
    batch = f"{'Without any change, largest' if step.does_not_fit else 'Largest'} batch{where}: {words(largest_batch)}."
    if reads_images(one.model):
        return batch
    return f"{batch} Longest context at batch {one.work.batch:,}: {words(largest_context)}."


def _stage(step: Step) -> str:
    stage, mesh = step.memory.step.stage, step.mesh
    if stage is None:
        return ""
    count = micro_batches(step.work, step.recipe)[1]
    idle = bubble(mesh, count)
    waits = "" if idle is None else f", bubble {units.percent(idle)} of the computing time"
    every, many = (units.number_of(number, "micro-batch") for number in (count, stage.in_flight))
    highest = f"pipeline rank {stage.rank + 1:,} of {mesh.pp:,} has the highest peak, with {many} in flight"
    return f"Pipeline: {mesh.schedule}, {every}{waits}; {highest}."


def _received(step: Step) -> str | None:
    """The receive buffers of a pipeline stage, if they are a large part of the peak."""
    stage, peak = step.memory.step.stage, step.memory.peak
    if stage is None or stage.buffers < LEAST_GAIN * int(peak.total):
        return None
    count = micro_batches(step.memory.work, step.recipe)[1]
    each = f"{units.binary(int(stage.buffers) // count)} for each of {count:,} micro-batches"
    return (
        f"The peak includes {units.binary(int(stage.buffers))} of receive buffers: torch's pipeline allocates {each},"
        " Megatron-LM only for those in flight."
    )


def _images(step: Step) -> str:
    """Bytes of the images that a step reads."""
    images = int(step.memory.step.weights - step.memory.step.parameters)
    return units.binary(images) if images and reads_images(step.memory.model) else ""


def _close(step: Step) -> bool:
    """True if the step fits, but not with what the allocator reserves."""
    return step.limit is not None and step.limit.is_tight(int(step.memory.peak.total))


def _accuracy(step: Step) -> str:
    return accuracy(step.memory.model, step.recipe, step.memory.bound)


NOT_INCLUDED = "Not included: allocator rounding, kernel workspaces, CUDA context, NCCL, torch.compile."
NOTES = (
    NoteRow("allocator", 1, _close, f"It may run out of memory: {RESERVED}"),
    NoteRow("change_that_fits", 1, _change_that_fits),
    NoteRow("allocator", 1, _some_tightly, TIGHTLY),
    NoteRow("whole_experts", 1, lambda step: ranks.whole_experts_note(step.memory.model, step.mesh)),
    NoteRow("buckets", 1, buckets),
    NoteRow("time", 1, _time),
    NoteRow("adapters", 1, _adapters),
    NoteRow("sent", 1, lambda step: step.mesh.ep > 1 and _sent(step)),
    NoteRow("received", 1, _received),
    NoteRow("largest", 1, lambda step: not _close(step) and _largest(step)),
    NoteRow("without_recompute", 1, _without_recompute),
    NoteRow("lever", 1, _lever),
    NoteRow("unreserved", 1, lambda step: step.limit is not None and not step.does_not_fit and step.limit.unreserved),
    NoteRow("lora_saves_more", 1, lambda step: step.recipe.lora and _lora_saves_more(step)),
    NoteRow("host", 1, lambda step: step.recipe.offload and states.host_words(step.memory.host)),
    NoteRow("packing", 1, lambda step: step.recipe.packing and _packed(step)),
    NoteRow(
        "optimizer_order",
        1,
        lambda step: step.memory.least < step.memory.peak.total,
        "The optimizer's temporary memory depends on the parameter order.",
    ),
    NoteRow("no_time", 2, _no_time),
    NoteRow("estimate", 2, lambda step: not step.memory.exact and _accuracy(step)),
    NoteRow("largest", 2, lambda step: _close(step) and _largest(step)),
    NoteRow("sent", 2, lambda step: step.mesh.ep == 1 and not step.does_not_fit and _sent(step)),
    NoteRow("stage", 2, _stage),
    NoteRow("experts", 2, _experts),
    NoteRow(
        "cp_buffers",
        2,
        lambda step: step.mesh.sequence_shards > 1,
        "Not included: buffers for keys and values of other ranks.",
    ),
    NoteRow("saved", 2, _saved),
    NoteRow("images", 2, _images, "weights includes {} of input images."),
    NoteRow(
        "paged",
        2,
        lambda step: optimizer(step.recipe.optimizer).paged,
        "Optimizer state is paged, so it can move to the host.",
    ),
    NoteRow(
        "quantized",
        2,
        lambda step: step.memory.model.quantized and step.recipe.weights_format,
        "The published weights are quantized; training uses {}.",
    ),
    NoteRow(
        "unquantized_experts",
        1,
        lambda step: step.recipe.weights_dtype == NF4 and routed(step.memory.model) and _unquantized(step),
    ),
    NoteRow("prepared", 2, lambda step: step.recipe.weights_dtype == NF4 and _prepared(step)),
    NoteRow("exact", 3, lambda step: step.memory.exact and _accuracy(step)),
    NoteRow("usable", 3, lambda step: step.limit is not None and step.limit.notes),
    NoteRow(
        "allocator",
        3,
        lambda step: step.limit is not None and not _close(step) and not _some_tightly(step),
        f"{RESERVED[0].upper()}{RESERVED[1:]}",
    ),
    NoteRow(
        "frozen_head",
        3,
        lambda step: bool(step.recipe.lora and step.memory.model.architecture.classes),
        "The classification head is frozen, as in peft without a task type.",
    ),
    NoteRow("gathered", 3, lambda step: step.mesh.fsdp > 1, "Temporary memory includes gathered parameters."),
    NoteRow("tensor_parallel", 3, lambda step: ranks.uneven_notes([step.memory.model], step.mesh)),
    NoteRow(
        "second_step",
        3,
        lambda step: step.memory.optimizer_bytes > 0,
        "Counted for the second step, when the optimizer state exists.",
    ),
    NoteRow("not_included", 3, lambda _: True, NOT_INCLUDED),
)
NOTES_OF_SEVERAL = (
    NoteRow("allocator", 1, lambda steps: any(map(_close, steps)), TIGHTLY),
    NoteRow(
        "estimate",
        2,
        lambda steps: not all(step.memory.exact for step in steps),
        "≈: within an error bound; name one model alone to see it.",
    ),
    NoteRow("usable", 2, lambda steps: steps[0].limit is not None and steps[0].limit.notes),
    NoteRow("not_included", 3, lambda _: True, NOT_INCLUDED),
)


# `--exact`: the class itself.


@record
class Measured:
    """A training step of the class, and of the formula, or the reason why there is none."""

    work: Workload
    recipe: Recipe
    limit: MemoryLimit | None
    memory: ExactStep
    formula: TrainingMemory | None
    no_formula: str | None

    @property
    def fits(self) -> bool:
        """True if the peak is not larger than the limit, if there is one."""
        return self.limit is None or self.memory.peak_bytes <= self.limit.usable

    @property
    def error(self) -> Fraction | None:
        """The error of the formula's peak, as a share of the class's."""
        measured = self.memory.peak_bytes
        return None if self.formula is None else Fraction(int(self.formula.peak.total) - measured, measured or 1)


def _slow(model: LoadedModel) -> list[str]:
    """The warning about a class that takes long to run."""
    loops = [part.hf_loop for part in model.architecture.parts() if part.hf_loop]
    return [f"hint: the class of {model.name} loops over {loop}" for loop in loops[:1]]


def train_exact(
    models: Sequence[LoadedModel],
    request: Request,
    recipe: Recipe,
    *,
    fit: MemoryLimit | None = None,
    by: str = "phase",
    progress: Tick = unwatched,
) -> ExactTrainReport:
    """Bytes of a training step of the class itself. `fit`: the memory of a device. Needs torch and transformers.
    Raises TfacctError."""
    recipe = recipe.checked()
    if len(models) > 1:
        raise UsageError(f"{option('exact', True)} runs one model", "name one MODEL")
    (model,) = models
    if by != "phase":
        raise UsageError(f"{option('by', by)} does not work with {option('exact', True)}", "its rows are modules")
    work, formula, reason = selection.workload(model, request), None, None
    step = exact(model, work, recipe, progress)
    try:
        formula = training_memory(model, work, recipe)
    except TfacctError as error:
        reason = error.message.removeprefix(f"{model.name}: ")
    one = Measured(work, replace(recipe, attention=step.attention), fit, step, formula, reason)
    runs = f"{one.memory.class_name} with {one.memory.attention}"
    state = "; the optimizer state by a formula" if step.state_by_formula else ", not by a formula"
    return build.report(
        ExactTrainReport,
        [model],
        _share_table("module", "saved for backward by", one.memory.saved_by, "saved for backward"),
        [values_of(ExactTrainReport, one)],
        title=f"{build.label(model)}: a training step in {states.precision(recipe)},"
        f" {build.workload_words([model], request, batch_words(work, recipe))}, {recipe.description}",
        answer=_exact_answer(one),
        notes=lambda _: notes(EXACT_NOTES, one),
        convention=f"by running {runs} on the meta device{state}",
        requests=[request],
        hints=_slow(model),
        headline="peak_bytes",
    )


def _exact_answer(one: Measured) -> str:
    step, limit = one.memory, one.limit
    versions = ", ".join(f"{name} {'.'.join(version.split('.')[:2])}" for name, version in step.versions.items())
    peak = f"{units.binary(step.peak_bytes)} ({step.peak_bytes:,} bytes)"
    how = f"measured by running {step.class_name} on the meta device ({versions})"
    if limit is None:
        return f"Peak: {peak}, {how}."
    return f"{'Fits' if one.fits else 'Does not fit'} {limit.where}: peak {peak}, {how}."


def _peak_of_class(one: Measured) -> str:
    step = one.memory
    sizes = {"weights": step.weights_bytes, "gradients": step.gradients_bytes, "optimizer state": step.optimizer_bytes}
    named = ", ".join(f"{name} {units.binary(size)}" for name, size in sizes.items())
    return f"The peak is {when(step.peak_phase, of_class=True)}. Largest sizes in the step: {named}."


def _formula(one: Measured) -> str:
    if one.formula is None or one.error is None:
        return f"The formula does not cover this step: {one.no_formula}."
    peak = int(one.formula.peak.total)
    return f"The formula gives {units.binary(peak)} ({peak:,} bytes): {error_words(one.error)}."


EXACT_NOTES = (
    NoteRow(
        "allocator",
        1,
        lambda one: one.limit is not None and one.limit.is_tight(one.memory.peak_bytes),
        f"It may run out of memory: {RESERVED}",
    ),
    NoteRow("peak", 2, _peak_of_class),
    NoteRow("formula", 2, _formula),
    NoteRow("usable", 3, lambda one: one.limit is not None and one.limit.notes),
    NoteRow("not_included", 3, lambda _: True, NOT_INCLUDED),
)


def error_words(error: Fraction) -> str:
    """A formula's error in words: `0.02% more`."""
    if error == 0:
        return "the same"
    size, side = abs(error) * 100, "more" if error > 0 else "less"
    places = next((places for places in (1, 2, 3, 4) if round(size, places)), None)
    return f"under 0.0001% {side}" if places is None else f"{units.decimals(size, places)}% {side}"
