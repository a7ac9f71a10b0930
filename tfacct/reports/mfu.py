"""Model FLOPs utilization (MFU): of a run whose speed is given, or of one on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from tfacct.accounts.metrics import Point
from tfacct.architecture.parts import MlaMode
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request
from tfacct.loading import devices, selection
from tfacct.loading.memory_limit import MemoryLimit, device_limit
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, NoteRow, Row, Tick, notes, unwatched
from tfacct.reports import build, model_notes
from tfacct.timing.compute_optimal import least_of_step
from tfacct.timing.utilization import (
    CONVENTIONS,
    FORWARD,
    Convention,
    above_peak,
    check_positive,
    conventions,
    peak_of,
)

if TYPE_CHECKING:
    from tfacct.verify.measured import Plan

of_convention: Keys[[Run, Convention]] = Keys()
of_run: Keys[[Run]] = Keys()


class MfuLine(Object):
    """FLOPs of a run in one convention, and their share of the peak."""

    convention: Convention = of_convention(lambda _, name: name)
    flops_per_token: float = of_convention(lambda run, name: run.per_token[name])
    flops_per_second: float = of_convention(lambda run, name: run.per_token[name] * run.each)
    mfu: float = of_convention(lambda run, name: run.per_token[name] * run.each / run.peak)


class MfuReport(build.ModelReport):
    """Model FLOPs utilization of a run in every convention; the key `mfu` counts full attention."""

    _line = MfuLine

    workload: build.WorkloadFacts = of_run(lambda run: selection.workload_facts(run.point.work, dtype=run.dtype))
    train: bool = of_run(lambda run: run.point.train)
    device: str = of_run(lambda run: run.limit.facts["device"])
    devices: int = of_run(lambda run: run.limit.count)
    peak_flops_per_second: int = of_run(lambda run: run.peak)
    tokens_per_second: float = of_run(lambda run: run.speed)
    seconds_per_step: float | None = of_run(lambda run: run.step_time)
    mfu: float = of_run(lambda run: run.mfu)
    lines: list[dict[str, Any]] = of_run(lambda run: [values_of(MfuLine, run, name) for name in run.per_token])


@record
class Run:
    """A run at `speed` tokens per second of all devices, which multiply in `dtype`, each with this `peak` in FLOP/s.
    `longest`: the context is not given. `per_token`: FLOPs by convention; `missing`: why there are none in others."""

    model: LoadedModel
    point: Point
    limit: MemoryLimit
    dtype: str
    peak: int
    speed: float
    step_time: float | None
    longest: bool
    per_token: Mapping[Convention, float]
    missing: list[str]

    @property
    def each(self) -> float:
        """Tokens per second of one device."""
        return self.speed / self.limit.count

    @property
    def mfu(self) -> float:
        return self.per_token["full"] * self.each / self.peak


NOTES = (
    NoteRow("expected", 1, lambda run: run.point.train and run.step_time is not None and _expected(run)),
    NoteRow("memory", 1, lambda run: run.point.train and _too_large(run)),
    NoteRow(
        "context",
        1,
        lambda run: run.longest and {"context": run.point.work.context, "option": option("ctx")},
        "Counted at the model's longest context, {context:,}. Give your run's context with {option}.",
    ),
    NoteRow(
        "source",
        2,
        lambda run: run.point.work.source,
        "Tokens: the decoder's; each sequence also has {:,} source tokens.",
    ),
    NoteRow("not_counted", 2, lambda run: run.missing, "A row is missing: {}."),
)


def mfu(
    model: LoadedModel,
    request: Request,
    on: str,
    *,
    tokens_per_second: float | None = None,
    step_time: float | None = None,
    dtype: str | None = None,
    train: bool = True,
) -> MfuReport:
    """MFU of a training run, or of forward passes, in every convention.

    Speed of all devices together: `tokens_per_second`, or the seconds of one step of `request.batch` whole sequences.
    `dtype`: of the matmuls. Raises TfacctError.
    """
    count, device = devices.several(option("on"), on)
    units_of, peak = peak_of(device, dtype)
    work = selection.runnable(model, request)
    speed = _speed(tokens_per_second, step_time, work.batch * work.context)
    point, limit = Point(model.ledger, work, train=train), device_limit(count, device, training=True)
    longest = request.ctx is None and selection.takes_context(model, model.context + 1)
    run = Run(model, point, limit, units_of, peak, speed, step_time, longest, *conventions(point))
    facts = values_of(MfuReport, run)
    rows: tuple[Row, ...] = tuple(
        {
            **line,
            "convention": (CONVENTIONS if train else FORWARD)[line["convention"]],
            "flops_per_token": Fraction(line["flops_per_token"]),
        }
        for line in facts["lines"]
    )
    columns = (
        Column("convention", "counted"),
        Column("flops_per_token", "FLOPs per token", "flops"),
        Column("flops_per_second", "FLOP/s per device", "flops"),
        Column("mfu", "MFU", "share"),
    )
    step, on_all, on_each = "training" if train else "forward passes", "", ""
    if count > 1:
        on_all, on_each = " on all devices", " on each device"
    batch = "" if step_time is None else f", batch {work.batch:,}{on_all}"
    return build.report(
        MfuReport,
        [model],
        (columns, (rows,), ()),
        [facts],
        title=f"{build.label(model)}: {step} on {device.several(count)}, {units_of}, context {work.context:,}{batch}",
        convention="2·m·k·n per matrix product, no recomputation; divided by the dense peak of all devices",
        answer=_answer(run, on_each),
        notes=lambda _: notes(NOTES, run),
        requests=[request],
    )


def _answer(run: Run, on_each: str) -> str:
    """The MFU, or that it is above 100%."""
    used, most = (units.three(flops / 1e12) for flops in (run.per_token["full"] * run.each, run.peak))
    found = f"{units.percent(run.mfu)} MFU (full attention): {used} of {most} TFLOP/s{on_each}."
    return above_peak(run.mfu) or found


def _speed(tokens_per_second: float | None, step_time: float | None, tokens: int) -> float:
    """Tokens per second of all devices. Raises UsageError unless exactly one of the two is given, above 0."""
    known = {"tokens_per_second": tokens_per_second, "step_time": step_time}
    given = {name: value for name, value in known.items() if value is not None}
    if len(given) != 1:
        example = f"for example {option('tokens_per_second', 60000)}, summed over all devices"
        hint = "give one of the two" if given else example
        raise UsageError(f"give {option('tokens_per_second')} or {option('step_time')}", hint)
    ((name, value),) = given.items()
    check_positive(name, value)
    return tokens / value if name == "step_time" else float(value)


def _expected(run: Run) -> str | None:
    """The estimated time of the step under FSDP next to that of the run; None without an estimate."""
    from tfacct.timing.step_estimate import fsdp_step

    found = fsdp_step(run.model, run.point.work, run.limit, run.dtype)
    if found is None:
        return None
    batch, times = found.work.batch, found.recipe.gradient_accumulation
    how = "under FSDP, " if run.limit.count > 1 else ""
    how += "without recomputation" + (f", {times:,} micro-batches of {batch:,}" if times > 1 else "")
    error = "the error is not known" if found.interval is None else f"80% interval {units.time_range(found.interval)}"
    return f"tfacct expects ≈ {units.seconds(found.parts.seconds)}{found.mfu_words}, {how} ({error})."


def _too_large(run: Run) -> str:
    """Memory of a training step that cannot fit."""
    least, usable = least_of_step(run.point, run.limit.count), run.limit.usable
    if least <= usable:
        return ""
    needs = f"{units.binary(least)} per device, more than the usable {units.binary(usable)}"
    return f"Full training under FSDP needs at least {needs}; adapters or offload need less."


# A run on this machine.


CONVENTION = "2·m·k·n per matrix product; MFU relative to a matmul timed on the same device in the same run"


class MeasureReport(build.ModelReport):
    """Seconds, FLOP/s and bytes of real runs."""

    _reserved: ClassVar[dict[str, Any]] = {"interrupted": bool}

    workload: build.WorkloadFacts
    device: str
    device_name: str
    torch: str
    threads: int | None
    attention: str
    latent_attention: MlaMode | None
    train: bool
    runs: int
    seconds_min: float
    seconds_median: float
    seconds_max: float
    tokens_per_second: float
    total_flops: int
    masked_flops: int
    flops_per_second: float
    masked_flops_per_second: float
    peak_flops_per_second: float | None
    mfu: float | None
    masked_mfu: float | None
    weights_bytes: int
    measured_weights_bytes: int
    kv_cache_bytes: int
    measured_kv_cache_bytes: int | None
    peak_bytes: int | None
    forward_flops: int
    counted_flops: int


CHECKS = (
    ("parameter bytes", "weights_bytes", "measured_weights_bytes"),
    ("{cache} bytes", "kv_cache_bytes", "measured_kv_cache_bytes"),
    ("forward FLOPs, by fvcore", "forward_flops", "counted_flops"),
)
"""Counts that a run checks: label, and keys of the formula and of the measurement."""


def measure(model: LoadedModel, request: Request, plan: Plan, *, progress: Tick = unwatched) -> MeasureReport:
    """Run one model on a device and compare time and bytes with the formulas. Needs torch and fvcore."""
    from tfacct.verify.measured import measured

    facts = measured(model, request, plan, progress)
    what = "training step" if plan.train else "decode step" if request.decode else "forward pass"
    checks: tuple[Row, ...] = tuple(
        {
            "what": name.format(cache=model_notes.cache_name([model])),
            "value": f"{facts[measured]:,}",
            "formula": f"{facts[formula]:,}",
            "verdict": "ok" if facts[formula] == facts[measured] else "DIFFERS",
        }
        for name, formula, measured in CHECKS
    )
    peak: Row = {"what": "peak bytes", "value": f"{facts['peak_bytes']:,}"}
    columns = (
        Column("what", what),
        Column("value", "measured", "count"),
        Column("formula", "formula", "count"),
        Column("verdict", "", "verdict"),
    )
    differing = sum(row["verdict"] != "ok" for row in checks)
    agree = f"{differing} of {len(checks)} counts differ" if differing else f"all {len(checks)} counts agree exactly"
    partial = " (interrupted: what was finished)" if facts["interrupted"] else ""
    about = {
        **facts,
        "where": "resident memory of the process" if facts["device"].startswith("cpu") else "torch's allocator",
        "counted": "its unfused equivalent" if plan.sdpa else "the model that ran",
    }
    report = build.report(
        MeasureReport,
        [model],
        (columns, (_speeds(model, facts), (*checks, peak)), ()),
        [facts],
        title=f"{build.label(model)}: {what} in {units.dtype_name(plan.dtype)}"
        f" {build.of_workload([model], request)}{partial}",
        convention=CONVENTION,
        answer=f"{units.seconds(facts['seconds_min'])} for a {what}, {units.percent(facts['mfu'])} of the matmul peak"
        f" here; {agree}.",
        notes=lambda _: notes(RUN_NOTES, about),
        requests=[request],
        defaults=[],
        headline="total_flops",
        agrees=not differing,
    )
    return replace(report, interrupted=facts["interrupted"])


def _speeds(model: LoadedModel, facts: Mapping[str, Any]) -> tuple[Row, ...]:
    """Times, FLOP/s and MFU; of masked pairs too if the model has attention."""

    def flops(key: str) -> str:
        return f"{units.si(round(facts[key]))}FLOP/s"

    attention, masked = model_notes.attends([model]), "masked pairs only"
    full = ", full T × S" if attention else ""
    spread = facts["seconds_max"] / facts["seconds_min"] - 1
    found = {
        "wall time, fastest": units.seconds(facts["seconds_min"]),
        "wall time, median": units.seconds(facts["seconds_median"]),
        f"spread of {facts['runs']} runs": units.percent(spread, 0) if facts["runs"] > 1 else None,
        "tokens/s": f"{facts['tokens_per_second']:,.1f}",
        f"achieved{full}": flops("flops_per_second"),
        f"achieved, {masked}": flops("masked_flops_per_second") if attention else None,
        "matmul peak here": flops("peak_flops_per_second"),
        f"MFU{full}": units.percent(facts["mfu"]),
        f"MFU, {masked}": units.percent(facts["masked_mfu"]) if attention else None,
    }
    return tuple({"what": what, "value": value} for what, value in found.items() if value is not None)


ATTENTION = {"counted": "; unfused attention", "scaled_dot_product_attention": "; fused attention (sdpa)"}
"""How attention runs, by its value in the JSON, after a clause."""
RUN_NOTES = (
    NoteRow("above_peak", 1, lambda facts: above_peak(facts["mfu"])),
    NoteRow(
        "machine",
        2,
        lambda facts: {**facts, "how": ATTENTION.get(facts["attention"], "")},
        "{device_name} ({device}), torch {torch}, {threads} threads; random weights{how}.",
    ),
    NoteRow(
        "peak",
        2,
        lambda facts: facts["where"],
        "The peak is the fastest square matmul timed in this run. Peak bytes: {}.",
    ),
    NoteRow("counter", 3, lambda facts: facts["counted"], "fvcore counted {}."),
)
