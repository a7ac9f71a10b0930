"""A run of a model on a device: measured seconds and bytes, next to the counts."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from tfacct.accounts.memory import cache_bytes, largest_that_fits, working_bytes
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.storage import storage, width
from tfacct.ledger.workload import LARGEST, Request, Workload, sequences_only
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Tick, unwatched
from tfacct.verify.checks import reference_modules

MOST_STEPS = 1_000_000
MARGIN = 10, 11
"""Usable share of the free memory: the need is an estimate, and others use the machine too."""


@record
class Plan:
    """Options of a run."""

    device: str = "cpu"
    dtype: str = "fp32"
    steps: int = 5
    train: bool = False
    sdpa: bool = False


def measured(model: LoadedModel, request: Request, plan: Plan, progress: Tick = unwatched) -> dict[str, Any]:
    """Runs one model on a device: seconds and bytes, and the counts of the formulas. Needs torch and fvcore. Raises
    TfacctError."""
    counter, reference_model = reference_modules(spelled("mfu --run", "measure()"))
    from tfacct.reference import running

    if plan.train and request.new is not None:
        raise sequences_only("train", does="measures")
    attends = bool(model.architecture.attentions)
    if plan.sdpa and not attends:
        raise UsageError(f"{option('sdpa')} changes how attention runs, and {model.name} has none")
    if not 1 <= plan.steps <= MOST_STEPS:
        raise UsageError(f"{option('steps')} must be from 1 to {MOST_STEPS:,}, not {plan.steps:,}")
    work = selection.workload(model, request)
    model = model.settled(work)  # one model runs every step
    _check_positions(model, work)
    on = running.device(plan.device)
    of = running.dtype(units.dtype_name(plan.dtype), on)
    weights, results = storage(plan.dtype), width(plan.dtype)
    _check_fits(model, work, plan, running.free_bytes(on))
    works = _workloads(work, request.decode, plan.steps)

    shape = model.architecture
    with running.memory_errors(on):
        progress("timing a matmul", 0, plan.steps)
        peak = FLOPS_PER_MULTIPLY_ADD * running.matmul_peak(on, of)
        progress("creating random weights", 0, plan.steps)
        reference = running.prepare(shape, on, of, fused=plan.sdpa, logits=work.logits)
        first = works[0]
        given = reference_model.inputs(shape, **first.sizes, device=str(on), dtype=of)

        def tick(done: int) -> None:
            progress("running", done, plan.steps)

        if request.decode:
            timed = running.timed_decode(reference, given, on, steps=plan.steps, tick=tick)
        else:
            timed = running.timed_passes(reference, given, on, runs=plan.steps, train=plan.train, tick=tick)
        if not timed.seconds:
            raise KeyboardInterrupt
        if plan.sdpa:  # counters see nothing in a fused kernel, so an unfused copy on meta is counted
            reference = reference_model.build(shape, logits=work.logits)
            given = reference_model.inputs(shape, **first.sizes)
        counted = counter.multiply_adds(reference, given)

    works = works[: len(timed.seconds)]
    flops, masked = (sum(_flops(model, w, plan.train, m) for w in works) for m in (False, True))
    total = sum(timed.seconds)
    last = works[-1]
    return {
        "workload": selection.workload_facts(last, dtype=units.dtype_name(plan.dtype)),
        **running.describe(on),
        "attention": "scaled_dot_product_attention" if plan.sdpa else "counted" if attends else None,
        "latent_attention": model.mla_mode,
        "train": plan.train,
        "interrupted": timed.interrupted,
        "runs": len(timed.seconds),
        "seconds_min": min(timed.seconds),
        "seconds_median": median(timed.seconds),
        "seconds_max": max(timed.seconds),
        "tokens_per_second": sum(w.batch * w.tokens for w in works) / total,
        "total_flops": flops,
        "masked_flops": masked,
        "flops_per_second": flops / total,
        "masked_flops_per_second": masked / total,
        "peak_flops_per_second": peak,
        "mfu": flops / total / peak,
        "masked_mfu": masked / total / peak,
        "weights_bytes": sum(model.ledger.weight_bytes(weights).values()),
        "measured_weights_bytes": timed.parameter_bytes,
        "kv_cache_bytes": cache_bytes(model.ledger, last.axes(), results),
        "measured_kv_cache_bytes": timed.cache_bytes,
        "peak_bytes": timed.peak_bytes,
        "forward_flops": model.ledger.total_flops(first.axes()),
        "counted_flops": FLOPS_PER_MULTIPLY_ADD * sum(counted.values()),
    }


def _check_positions(model: LoadedModel, work: Workload) -> None:
    """Raises UsageError for contexts longer than a learned position embedding."""
    shape = model.architecture
    read = None if shape.encoder is None else shape.encoder.positions
    lengths = (("ctx", "context", shape.positions, work.context), ("source", "source", read, work.source))
    for name, what, table, length in lengths:
        if table is not None and length > table.rows - table.offset:
            raise UsageError(
                f"{model.name} has {table.rows - table.offset:,} positions, so it cannot run at {what} {length:,}",
                f"{option(name, table.rows - table.offset)}; `flops` counts longer contexts",
            )


def _workloads(work: Workload, decode: bool, steps: int) -> list[Workload]:
    """One workload per run. Decode steps follow each other, and the last one ends at the context."""
    if not decode:
        return [work] * steps
    if work.context <= steps:
        raise UsageError(
            f"{steps} decode steps end at context {work.context:,}, which leaves no tokens before the first step",
            f"{option('ctx')} must be at least {steps + 1}, or use fewer {option('steps')}",
        )
    return [replace(work, context=work.context - steps + 1 + i) for i in range(steps)]


def _flops(model: LoadedModel, work: Workload, train: bool, masked: bool) -> int:
    ledger, at = model.ledger, work.axes()
    backward = ledger.total_flops(at, masked=masked, backward=True) if train else 0
    return int(ledger.total_flops(at, masked=masked) + backward)


def _needed(model: LoadedModel, work: Workload, plan: Plan) -> int:
    """Estimated peak bytes of a run."""
    at, weights, results = work.axes(), storage(plan.dtype), width(plan.dtype)
    stored, cached = sum(model.ledger.weight_bytes(weights).values()), cache_bytes(model.ledger, at, results)
    # A decode step has three caches alive: its input, the previous one and its output.
    caches = 3 if work.tokens == 1 else 1
    return int(stored + caches * cached + working_bytes(model.ledger, at, weights, results, train=plan.train))


def _check_fits(model: LoadedModel, work: Workload, plan: Plan, free: int) -> None:
    """Raises UsageError, before anything is allocated, for a run that does not fit; the hint has what would fit."""
    budget = free * MARGIN[0] // MARGIN[1]
    needed = _needed(model, work, plan)
    if needed <= budget:
        return

    def at(context: int, batch: int) -> int:
        tokens = work.tokens if work.tokens == 1 else context
        return _needed(model, replace(work, context=context, tokens=tokens, batch=batch), plan)

    context = largest_that_fits(lambda n: at(n, work.batch), budget, min(work.context, LARGEST))
    batch = largest_that_fits(lambda n: at(work.context, n), budget, work.batch)
    stacks = model.architecture.every_stack
    blocks = min(stack.count for stack in stacks)

    def with_layers(count: int) -> int:
        fewer = model.with_layers(count)
        least = replace(work, context=min(16, work.context), tokens=min(16, work.tokens), batch=1)
        return _needed(fewer, least, plan)

    if context:
        hint = f"{option('ctx', context)} would fit at batch {work.batch:,}"
        hint += f", or {option('batch', batch)} at context {work.context:,}" if batch else ""
    elif batch:
        hint = f"{option('batch', batch)} would fit"
    else:
        layers = largest_that_fits(with_layers, budget, blocks)
        some = (
            f"its first {layers:,} of {blocks:,} layers"
            if len(stacks) == 1
            else f"{layers:,} of each kind of its layers"
        )
        hint = f"{some} would fit" if layers else "not even one layer would fit"
    raise UsageError(
        f"{model.name} needs about {units.binary(needed)} ({needed:,} bytes) in {plan.dtype}, but only"
        f" {units.binary(free)} is free",
        f"{hint}; a narrower {option('dtype')} needs less",
    )
