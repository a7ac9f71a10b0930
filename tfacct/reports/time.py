"""Estimated time of a step: serving kernel by kernel, training part by part, a calibrated machine line by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Literal, TypedDict

from tfacct.accounts.step_flops import How
from tfacct.base import units
from tfacct.base.errors import UsageError, exclusive
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.storage import DEFAULT_DTYPE
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import devices, selection
from tfacct.loading.calibration import Calibration
from tfacct.loading.links import LinkUsed
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import AnswerT
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import PLAIN, Column, NoteRow, Row, Table, notes
from tfacct.reports import build, model_notes
from tfacct.reports.estimates import (
    CONVENTION,
    DOUBT,
    FILES,
    HEAD_NORMS,
    LINKS,
    RANGE,
    OnDevices,
    Validated,
    assumptions,
    calibrated_id,
    error_note,
    formats_note,
    link_notes,
    placement_facts,
    step_error,
    validation_facts,
)
from tfacct.timing.calibrated import ReferencePass, reference_pass
from tfacct.timing.kernel_time import CONSTANTS, Step, Timed, least_read
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.step_estimate import StepEstimate, constants_of, fitting_options, step_estimate
from tfacct.timing.validated import BASELINE, STORED, Metric
from tfacct.training.recipe import Recipe, batch_words
from tfacct.training.states import precision

of_calibration: Keys[[Calibration]] = Keys()
of_serving: Keys[[ServingStep]] = Keys()
of_training: Keys[[StepEstimate]] = Keys()


class Calibrated(Object):
    """The calibration of a machine. `checks`: whole passes, measured over predicted; then their median error and
    their range."""

    machine: str = of_calibration(lambda on: on.machine)
    dtype: str = of_calibration(lambda on: on.dtype)
    threads: int = of_calibration(lambda on: on.threads)
    torch: str = of_calibration(lambda on: on.torch)
    clock: Literal["process", "wall", "events"] = of_calibration(lambda on: on.clock)
    read: str = of_calibration(lambda on: on.read)
    checks: dict[str, float] = of_calibration(lambda on: on.checks.ratios)
    median_error: float = of_calibration(lambda on: on.checks.error)
    low: float = of_calibration(lambda on: on.checks.ends[0])
    high: float = of_calibration(lambda on: on.checks.ends[1])


# A step.


BOUND = "never below"
LIMITED = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "link": "bound by the link",
    "launch": "launch-bound",
    "host": "CPU-bound (the engine)",
}
LIMITED_BY = {
    **dict.fromkeys((("compute", "gemm"), ("compute", "experts")), "matmuls"),
    **dict.fromkeys((("memory", "gemm"), ("memory", "experts")), "weights"),
    **dict.fromkeys((("memory", "pointwise"), ("memory", "lookup")), "activations"),
    ("compute", "attention"): "attention",
    ("memory", "attention"): "KV cache",
}
"""What kernels of a kind compute, or read, by what limits them."""
PARTS = {
    "step": "all FLOPs",
    "products": "matmuls of layers",
    "experts": "matmuls of experts",
    "head": "head",
    "attention": "attention",
    "pointwise": "pointwise",
    "logits": "logits and loss",
    "launches": "kernel launches",
    "gathers": "all-gather, reduce-scatter",
    "sums": "collectives over tp",
    "exchange": "all-to-all of experts",
    "waiting": "idle pipeline stages",
    "gradients": "gradient all-reduce",
    "optimizer": "optimizer",
    "rest": "rest",
}
"""Parts of a training step: `parts_seconds` in the JSON, and their names in the table."""
LEAST = (
    "weights, AdamW state, and the larger of gradients and matmul inputs, in bf16",
    "weights, gradients, AdamW state and matmul inputs, in bf16",
)
"""What the least memory includes: of one micro-batch, and of several, whose gradients stay in memory."""


STATED_CONVENTION = "seconds of all FLOPs, without recomputation, at a stated share of the bf16 peak"


TIMES_AND_FLOPS = (Column("times", "times", "count", drop=1), Column("flops", "FLOPs", "flops", drop=1))
ESTIMATED = (Column("seconds", "≈ time", "seconds"), Column("share", "share", "share", drop=3))


class TimedKernel(TypedDict):
    """Kernels of one name in all layers: FLOPs, bytes and estimated seconds on one device."""

    kernel: str
    times: int
    flops: int
    bytes: int | None
    limit: Literal["compute", "memory", "launch", "link"] | None
    seconds: float | None


class TimeReport(build.ModelReport):
    """Estimated time of a step on devices, kernel by kernel."""

    workload: build.WorkloadFacts = of_serving(
        lambda one: selection.workload_facts(one.work, masked=True, dtype=one.one.dtype)
    )
    on: OnDevices = of_serving(lambda one: placement_facts(one.one))
    estimate: bool = of_serving(lambda one: not one.bound_only)
    value_seconds: float | None = of_serving(lambda one: None if one.bound_only else one.step.seconds)
    interval_80_seconds: list[float] | None = of_serving(lambda one: one.interval)
    bound_seconds: float = of_serving(lambda one: one.step.bound)
    tokens_per_second: float | None = of_serving(lambda one: None if one.bound_only else one.rate)
    engine_seconds: float | None = of_serving(lambda one: None if one.bound_only else one.step.engine)
    kernels: list[TimedKernel] = of_serving(lambda one: one.rows)
    validation: Validated | None = of_serving(
        lambda one: None if one.bound_only else validation_facts(one.one, one.metric)
    )
    assumptions: dict[str, float] = of_serving(lambda _: assumptions())
    calibration: Calibrated | None


def _may_fit(one: StepEstimate) -> bool:
    """False for a step that fits with no kernels, whose time is not reported."""
    return one.memory.fits is not False


class TimeTrainReport(build.ModelReport):
    """Estimated time of a training step, and its time at a constant MFU."""

    _name = "time-train"
    workload: build.WorkloadFacts = of_training(
        lambda one: selection.workload_facts(one.trained.work, dtype=one.trained.dtype)
    )
    train: bool = of_training(lambda _: True)
    device: str = of_training(lambda one: one.device.id)
    devices: int = of_training(lambda one: one.trained.mesh.ranks)
    accumulate: int = of_training(lambda one: one.trained.accumulate)
    recompute: How = of_training(lambda one: one.trained.recompute)
    tp: int = of_training(lambda one: one.trained.mesh.tp)
    sp: bool = of_training(lambda one: one.trained.mesh.sp)
    pp: int = of_training(lambda one: one.trained.mesh.pp)
    pp_chunks: int = of_training(lambda one: one.trained.mesh.chunks)
    cp: int = of_training(lambda one: one.trained.mesh.cp)
    ep: int = of_training(lambda one: one.trained.mesh.ep)
    link: LinkUsed | None = of_training(lambda one: one.link and one.link.facts())
    link_tp: LinkUsed | None = of_training(lambda one: one.link_tp and one.link_tp.facts())
    estimate: bool = of_training(lambda _: True)
    fits: bool | None = of_training(lambda one: one.memory.fits)
    least_bytes: int = of_training(lambda one: one.memory.least)
    needed_bytes: int | None = of_training(lambda one: one.memory.counted)
    usable_bytes: int = of_training(lambda one: one.memory.usable)
    value_seconds: float | None = of_training(lambda one: one.parts.seconds, when=_may_fit)
    interval_80_seconds: list[float] | None = of_training(lambda one: one.interval, when=_may_fit)
    constant_utilization_seconds: float | None = of_training(lambda one: one.usual, when=_may_fit)
    parts_seconds: dict[str, float] | None = of_training(lambda one: one.parts, when=_may_fit)
    tokens_per_second_each: float | None = of_training(lambda one: one.rate, when=_may_fit)
    mfu: float | None = of_training(lambda one: one.mfu("full"), when=_may_fit)
    mfu_palm: float | None = of_training(lambda one: one.mfu("palm"), when=_may_fit)
    days: float | None = of_training(lambda one: one.days, when=_may_fit)
    validation: Validated | None = of_training(
        lambda one: values_of(Validated, one.validation, one.device.id, STORED[one.alike][one.trained.dtype]),
        when=lambda one: _may_fit(one) and one.validation is not None and one.interval is not None,
    )
    assumptions: dict[str, float] = of_training(
        lambda one: (
            assumptions(constants_of(one.model, one.trained)) if one.stated_mfu is None else {"mfu": one.stated_mfu}
        )
    )
    calibration: Calibrated | None


@record
class ServingStep:
    """A step of a model that is served. `bound_only`: the bound is asked for, without an estimate."""

    one: Placement
    work: Workload
    step: Step
    bound_only: bool

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds between which 80% of such steps lie; None without an estimate or a known error."""
        return None if self.bound_only else self.one.interval(self.step.seconds, self.metric)

    @property
    def metric(self) -> Metric:
        """What runs were measured of: the time per token for a decode step, else that of a request."""
        return "token" if self.work.tokens == 1 else "request"

    @property
    def rate(self) -> float:
        """New tokens per second, of the bound if only it is asked for."""
        seconds = self.step.bound if self.bound_only else self.step.seconds
        return float(self.work.batch * self.work.tokens / seconds)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Keys of `TimedKernel`: kernels by name, in order; then one row each for pointwise work, all-reduces and
        all-gathers. Their bytes: all that they move, or those that the bound takes, without seconds, if only it is
        asked for."""
        found, last = defaultdict[str, list[Timed]](list), ("pointwise", "all-reduce", "all-gather")
        for timed in sorted(
            self.step.kernels, key=lambda one: one.kernel.kind in last and 1 + last.index(one.kernel.kind)
        ):
            sent = f"{timed.kernel.kind} over {self.one.count:,}"
            found[timed.kernel.name if timed.kernel.over == 1 else sent].append(timed)
        return [
            {
                "kernel": name,
                "times": sum(each.kernel.times for each in alike),
                "flops": sum(each.kernel.flops for each in alike),
                "bytes": round(sum(least_read(each.kernel) if self.bound_only else each.bytes for each in alike)),
                "limit": max(alike, key=lambda each: each.seconds).limit,
                "seconds": None if self.bound_only else sum(each.seconds for each in alike),
            }
            for name, alike in found.items()
        ]


def time(
    model: LoadedModel,
    request: Request,
    on: Deployment,
    *,
    prefill: bool = False,
    bound_only: bool = False,
) -> TimeReport:
    """Seconds of a decode step, of a step of `request.tokens` new tokens, or of the `prefill` of whole prompts. Raises
    TfacctError, also if weights and cache do not fit."""
    if prefill and request.new is not None:
        other = "decode" if request.decode else "tokens"
        raise exclusive(option("prefill"), option(other))
    if not prefill and request.tokens is None:
        request = replace(request, decode=True)
    if calibrated := calibrated_id(on):
        for name, given in (("lower_bound", bound_only), ("ep", on.ep != 1), ("kv_dtype", on.kv_dtype is not None)):
            if given:
                raise UsageError(
                    f"{option(name, True)} does not work on {calibrated}, which was calibrated with the reference model"
                )
        return _time_calibrated(TimeReport, model, request, on, train=False)
    request = replace(request, logits="last")
    memory = on.memory()
    one, work = on.place(model, memory.count, memory.device), selection.runnable(model, request)
    one.check_fits(work.context, work.batch, memory)
    served = ServingStep(one, work, one.host.step(work), bound_only)
    facts = values_of(TimeReport, served)
    if prefill:
        what = "a prefill"
    else:
        what = "one decode step" if work.tokens == 1 else f"a step of {units.number_of(work.tokens, 'new token')}"
    stored = selection.format_name(model, on.dtype)
    return build.report(
        TimeReport,
        [model],
        _table(served, facts["kernels"]),
        [facts],
        title=f"{build.label(model)}: {what} on {one.where}, {stored}, context {work.context:,}, batch {work.batch:,}",
        convention="FLOPs and bytes of each device at its peaks, no fitted constants" if bound_only else CONVENTION,
        answer=_answer(served),
        notes=lambda _: notes(BOUND_NOTES if bound_only else NOTES, served),
        requests=[request],
    )


def _table(served: ServingStep, kernels: Sequence[dict[str, Any]]) -> Table:
    """Kernels with their seconds, or those that the bound counts, which uses no fitted constant."""
    step, seconds = served.step, served.step.seconds
    rows = [{**row, "flops": row["flops"] or None} for row in kernels]
    where = "kernel on each device" if served.one.count > 1 else "kernel"
    columns = (Column("kernel", where), *TIMES_AND_FLOPS, Column("bytes", "bytes", "bytes", drop=1))
    if served.bound_only:
        counted = tuple(row for row in rows if row["bytes"])
        bounds = {
            "FLOPs at the peak": units.seconds(step.compute),
            "weights and cache at the bandwidth": units.seconds(step.memory),
            BOUND: units.seconds(step.bound),
        }
        return (*columns, Column("seconds", "", "seconds")), (counted,), _totals(BOUND, bounds)
    rows.append({"kernel": "engine", "times": 1, "limit": "host", "seconds": step.engine})
    totals = {"step": f"≈ {units.seconds(seconds)}", BOUND: units.seconds(step.bound)}
    shown = tuple({**row, "share": row["seconds"] / seconds} for row in rows)
    return (*columns, Column("limit", "limit", drop=1), *ESTIMATED), (shown,), _totals("step", totals)


def _totals(total: str, texts: Mapping[str, str | None], key: str = "kernel") -> tuple[Row, ...]:
    """Times below a table, without those that are not known; the `total` is emphasised."""
    return tuple({key: name, "seconds": text, PLAIN: name != total} for name, text in texts.items() if text)


def _answer(served: ServingStep) -> str:
    work, step, rate = served.work, served.step, units.three(served.rate)
    what = "a token" if work.tokens == 1 else units.number_of(work.tokens, "new token")
    what += "" if work.batch == 1 else f" of each of {work.batch:,} sequences"
    if served.bound_only:
        take = "takes" if work.tokens == 1 else "take"
        return f"At peak speed, {what} {take} at least {units.seconds(step.bound)}: at most {rate} tokens/s."
    interval = f" (80% interval {units.time_range(served.interval)})" if served.interval else ""
    in_all = " in all" if work.batch > 1 else ""
    return f"≈ {units.seconds(step.seconds)} for {what}{interval}, ≈ {rate} tokens/s{in_all}. {_limit_words(step)}"


def _limit_words(step: Step) -> str:
    """What limits most of a step, and what that time goes to, as shares of the step."""
    seconds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for timed in step.kernels:
        seconds[timed.limit][LIMITED_BY.get((timed.limit, timed.kernel.kind), "")] += timed.seconds
    seconds["host"][""] += step.engine
    limit, parts = max(seconds.items(), key=lambda item: sum(item[1].values()))
    largest_first = sorted(parts.items(), key=itemgetter(1), reverse=True)
    shares = [
        f"{part} {units.percent(share, 0)}"
        for part, each in largest_first
        if part and (share := each / step.seconds) >= 0.005
    ]
    total = f"{units.percent(sum(parts.values()) / step.seconds, 0)} {LIMITED[limit]}"
    return f"{': '.join(filter(None, (total, ', '.join(shares))))}."


def _bound_note(served: ServingStep) -> str:
    experts = " Experts: those of one token." if served.one.model.ledger.experts else ""
    times = "all FLOPs at peak FLOP/s, or weights and cache at peak bandwidth"
    return f"The bound is the longer of two times: {times}.{experts}"


def _server(served: ServingStep) -> str:
    """How a server's time to first token is estimated, if the step is a prompt."""
    if not 1 < served.work.tokens == served.work.context:
        return ""
    asked = spelled(f"`tfacct serve … --prompt {served.work.context}`", f"serve(prompt={served.work.context})")
    return f"A server adds ≈ {units.seconds(CONSTANTS.request)} to the first token of a request: {asked}."


FORMATS = NoteRow("formats", 2, lambda of: formats_note(of.one))
NOTES = (
    NoteRow("error", 1, lambda served: error_note(served.one, served.metric)),
    NoteRow(
        "experts",
        1,
        lambda served: served.one.model.ledger.experts and served.work.tokens * served.work.batch > 1,
        '"never below" assumes that all tokens take the same experts.',
    ),
    NoteRow("server", 1, _server),
    NoteRow(
        "pairs",
        2,
        lambda served: served.work.tokens > 1 and model_notes.attends([served.one.model]),
        "FLOPs of attention are those of the pairs inside the mask, as `flops --masked` counts them.",
    ),
    HEAD_NORMS,
    FILES,
    RANGE,
    LINKS,
    FORMATS,
)
BOUND_NOTES = (NoteRow("bound", 1, _bound_note), FILES, RANGE, LINKS, FORMATS)


def time_train(
    model: LoadedModel,
    request: Request,
    recipe: Recipe,
    on: Deployment,
    *,
    tokens_total: int | None = None,
    mfu: float | None = None,
) -> TimeTrainReport:
    """Seconds of a training step on devices that share it. Raises TfacctError."""
    if calibrated := calibrated_id(on, train=True):
        if recipe != Recipe() or tokens_total is not None or mfu is not None:
            raise UsageError(
                f"{calibrated} was calibrated for a plain step: one micro-batch, no recomputation, no days"
            )
        return _time_calibrated(TimeTrainReport, model, request, on, train=True)
    work, memory = selection.runnable(model, request), on.memory(training=True)
    dtype = "fp8" if on.dtype == "mxfp8" else units.dtype_name(on.dtype or DEFAULT_DTYPE)  # one rate in both
    one = step_estimate(model, work, recipe, memory, dtype, total_tokens=tokens_total, mfu=mfu)
    under = "Megatron-LM's tensor and pipeline parallelism" if one.trained.megatron else "FSDP"
    return build.report(
        TimeTrainReport,
        [model],
        _train_table(one),
        [values_of(TimeTrainReport, one)],
        title=f"{build.label(model)}: one training step on {one.device.several(one.trained.mesh.ranks)}, {dtype},"
        f" {_train_words(one)}",
        convention=f"{CONVENTION}, under {under}" if mfu is None else STATED_CONVENTION,
        answer=_train_answer(one),
        notes=lambda _: notes(TRAIN_NOTES, one),
        requests=[request],
    )


def _train_words(one: StepEstimate) -> str:
    """The workload and the recipe, after a title."""
    recompute = "" if one.trained.recompute == "none" else f", recompute {one.trained.recompute}"
    loss = ", loss in chunks" if one.trained.chunked else ""
    return f"context {one.work.context:,}, {batch_words(one.work, one.recipe)}{recompute}{loss}"


def _train_table(one: StepEstimate) -> Table:
    """Seconds by part; of a step that does not fit, its memory."""
    if one.memory.fits is False:
        return _missing_memory(one)
    seconds = one.parts.seconds
    rows: list[Row] = [
        {"what": PARTS[name], "seconds": part, "share": part / seconds} for name, part in one.parts.items() if part
    ]
    baseline = f"baseline, {BASELINE[one.trained.megatron]['mfu']:.1%} MFU"
    totals = {
        "step": f"≈ {units.seconds(seconds)}",
        "80% interval": one.interval and units.time_range(one.interval),
        baseline: None if one.usual is None else f"≈ {units.seconds(one.usual)}",
    }
    return (Column("what", "part"), *ESTIMATED), (tuple(rows),), _totals("step", totals, "what")


def _missing_memory(one: StepEstimate) -> Table:
    needed = {
        "needed at least": one.memory.least,
        "needed as transformers runs it": one.memory.counted,
        f"usable of {one.device.name}": one.memory.usable,
    }
    rows: tuple[Row, ...] = tuple({"what": what, "bytes": size} for what, size in needed.items() if size is not None)
    return (Column("what", "on each device"), Column("bytes", "bytes", "bytes")), (rows,), ()


def _train_answer(one: StepEstimate) -> str:
    memory = one.memory
    if memory.fits is False:
        needed = units.needed_and_usable(memory.least, memory.usable, " on each device")
        changed = fitting_options(one)
        advice = f"; try {' '.join(option(name, value) for name, value in changed.items())}" if changed else ""
        return f"Does not fit: needs at least {needed}{advice}."
    each = " on each device" if one.trained.mesh.ranks > 1 else ""
    step = f"≈ {units.seconds(one.parts.seconds)} a step, ≈ {units.three(one.rate)} tokens/s{each}"
    if (mfu := one.mfu("full")) is not None:
        step += f", {units.percent(mfu)} MFU"
    if one.days is not None:
        step += f", ≈ {units.three(one.days)} days for {units.people(one.total_tokens or 0)} tokens"
    if memory.fits is None and memory.counted is not None:
        needed = units.needed_and_usable(memory.counted, memory.usable)
        fewer = f"If it fits with kernels that save fewer activations: {step}."
        return f"Does not fit with transformers' kernels (needs {needed}). {fewer}"
    return f"{step}."


def _fit_note(one: StepEstimate) -> str:
    """Whether a step fits that is not sure to exceed the memory."""
    least, counted, usable = one.memory.least, one.memory.counted, units.binary(one.memory.usable)
    if counted is None:
        return f"Whether the step fits is not known: {one.memory.reason}."
    if one.memory.fits:
        needed = f"{'' if one.memory.exact else '≈ '}{units.binary(counted)}"
        tightly = " tightly" if MemoryLimit(one.memory.usable).is_tight(counted) else ""
        return f"Fits{tightly}: needs {needed} of {usable} as transformers runs it in {precision(one.recipe)}."
    return f"With any kernels, the step needs at least {units.binary(least)}: {LEAST[one.trained.accumulate > 1]}."


def _assumed(one: StepEstimate) -> str:
    if one.stated_mfu is None:
        return ""
    recomputed = " It counts no recomputation." if one.trained.recompute != "none" else ""
    return f"{units.percent(one.stated_mfu)} MFU is your assumption, not an estimate.{recomputed}"


def _if_timed(when: Callable[[StepEstimate], Any], assumed: bool = False) -> Callable[[StepEstimate], Any]:
    """`when` of a step that may fit and has an estimate; `assumed`: also of one at a stated utilization."""
    return lambda one: one.memory.fits is not False and (assumed or one.stated_mfu is None) and when(one)


TRAIN_NOTES = (
    NoteRow(
        "least", 1, lambda one: one.memory.fits is False and LEAST[one.trained.accumulate > 1], "The minimum counts {}."
    ),
    NoteRow("room", 1, _if_timed(_fit_note, assumed=True)),
    NoteRow("assumed", 1, _if_timed(_assumed, assumed=True)),
    NoteRow(
        "error",
        1,
        _if_timed(lambda one: step_error(one.alike, one.device, one.link, one.trained.dtype)),
        "Estimate. {}",
    ),
    NoteRow(
        "baseline",
        2,
        _if_timed(lambda one: one.usual and BASELINE[one.trained.megatron]),
        "Baseline: the time if every step ran at {mfu:.1%} MFU{counted}."
        " Its median error on runs of {steps} is {error:.1%}.",
    ),
    NoteRow("links", 2, _if_timed(lambda one: link_notes(one.link_tp, one.link))),
    NoteRow(
        "mfu",
        3,
        _if_timed(lambda one: one.mfu("full")),
        "MFU counts full attention and no recomputation.",
    ),
)


# The reference model on a calibrated machine.


def _time_calibrated(
    kind: type[AnswerT], model: LoadedModel, request: Request, where: Deployment, *, train: bool
) -> AnswerT:
    """Seconds of a pass of the reference model. Raises TfacctError."""
    memory = where.memory(training=train)
    device = memory.device
    assert device is not None and device.calibration is not None
    on = device.calibration
    if memory.count != 1:
        one_device = option("on", devices.number_and_name(option("on"), where.on)[1])
        raise UsageError(f"{device.id} was calibrated as one device, not as {memory.count:,}", one_device)
    if where.dtype is not None and units.dtype_name(where.dtype) != on.dtype:
        raise UsageError(f"{device.id} was calibrated in {on.dtype}, not in {where.dtype}", option("dtype", on.dtype))
    work = selection.runnable(model, request)
    one = reference_pass(model, work, train, on)
    if one.bytes > memory.usable:
        raise UsageError(
            f"{model.name}: {units.binary(one.bytes)} of weights and cache exceed the usable {memory.words}"
        )
    what = "one decode step" if _decodes(one) else "a forward pass"
    what = "a forward and a backward pass" if train else what
    return build.report(
        kind,
        [model],
        _calibrated_table(one, device),
        [_calibrated_facts(one, device, memory)],
        title=f"{build.label(model)}: {what} on {device.name}, {on.dtype}, context {work.context:,},"
        f" batch {work.batch:,}",
        convention="the reference model, line by line; seconds are estimated from the calibration of this machine",
        answer=f"≈ {units.seconds(one.seconds)} for {what}: ≈ {units.three(one.rate)} tokens/s.",
        notes=lambda _: notes(CALIBRATED_NOTES, one),
        requests=[request],
    )


def _decodes(one: ReferencePass) -> bool:
    return bool(one.work.tokens == 1 < one.work.context)


def _calibrated_table(one: ReferencePass, device: devices.Device) -> Table:
    """Seconds by kind of line."""
    rows: tuple[Row, ...] = tuple(
        {
            "kernel": part.name,
            "times": part.times,
            "flops": part.flops or None,
            "seconds": part.seconds,
            "share": part.seconds / one.seconds,
        }
        for part in one.parts
    )
    totals = {
        "pass": f"≈ {units.seconds(one.seconds)}",
        "range by measured errors": units.time_range(one.interval),
        "plain roofline": f"≈ {units.seconds(one.roofline(device))}",
    }
    return (Column("kernel", "lines"), *TIMES_AND_FLOPS, *ESTIMATED), (rows,), _totals("pass", totals)


CALIBRATED_NOTES = (
    NoteRow("doubtful", 1, lambda one: one.on.checks.doubtful, DOUBT),
    NoteRow(
        "error",
        1,
        lambda one: {"count": len(one.on.checks.ratios), "ends": one.on.checks.ends, "error": one.on.checks.error},
        "Estimate for the unfused reference model, not for an engine. {count:,} whole passes of small models took"
        " {ends[0]:.2f} to {ends[1]:.2f} × their estimates: median error {error:.1%}.",
    ),
    NoteRow(
        "swept",
        2,
        lambda one: {"on": one.on},
        "Calibrated on {on.read}: {on.machine}, {on.threads_words}, torch {on.torch}.",
    ),
)


def _calibrated_facts(one: ReferencePass, device: devices.Device, memory: MemoryLimit) -> dict[str, Any]:
    """Keys of `TimeTrainReport` of a training step, else of `TimeReport`."""
    on = one.on
    facts = {
        "workload": selection.workload_facts(one.work, dtype=on.dtype),
        "estimate": True,
        "value_seconds": one.seconds,
        "assumptions": {},
        "calibration": values_of(Calibrated, on),
    }
    if one.train:
        return {
            **facts,
            **{"train": True, "device": device.id, "devices": 1, "accumulate": 1, "recompute": "none"},
            **{"tp": 1, "sp": False, "pp": 1, "pp_chunks": 1, "cp": 1, "ep": 1},
            "least_bytes": one.bytes,
            "usable_bytes": memory.usable,
            "parts_seconds": {part.name: part.seconds for part in one.parts},
            "tokens_per_second_each": one.rate,
            "mfu": one.flops / one.seconds / device.peak[on.dtype],
        }
    place = {"device": device.id, "count": 1, "tp": 1, "ep": 1, "link": None, **device.memory_facts()}
    stored = {"dtype": on.dtype, **selection.format_facts(one.model, on.dtype), "kv_dtype": on.dtype}
    return {
        **facts,
        "on": {**place, **stored},
        "bound_seconds": one.roofline(device),
        "tokens_per_second": one.rate,
        "engine_seconds": 0.0,
        "kernels": [
            {"kernel": name, "times": times, "flops": flops, "bytes": None, "limit": None, "seconds": seconds}
            for name, times, flops, seconds in one.parts
        ],
    }
