"""How long a training step takes on devices that share it: which steps have an estimate, and what it was measured
against."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading import devices
from tfacct.loading.links import NODE, Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, Schedule
from tfacct.reports.placed import MEASURED, check_heads
from tfacct.timing import divided_time, training_time
from tfacct.timing.divided_time import Again, DividedParts, Meshed
from tfacct.timing.kernels import NoKernelError
from tfacct.timing.training_time import Parts, Trained
from tfacct.timing.validated import NEWER_STACKS, REPORTED, VALIDATED, Validation
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe

DTYPES = ("bf16", "fp8")
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 2 + 2
"""Bytes per parameter of a weight, its gradient and AdamW's two states, all in bf16: the least of any step."""
MOST_DOUBLINGS = 8
"""How often the number of devices is doubled in search of a step that fits."""


@record
class Trains:
    """How a model is trained, as a user words it: micro-batches before an update, recomputed blocks, tokens in all."""

    accumulate: int = 1
    recompute: bool = False
    tokens_total: int | None = None
    recompute_attention: bool = False
    mesh: Meshed = Meshed()

    @property
    def again(self) -> Again:
        """What runs again before its backward pass."""
        return "blocks" if self.recompute else "attention" if self.recompute_attention else ""


def estimated(
    subject: LoadedModel, work: Workload, count: int, device: devices.Device, name: str, how: Trains
) -> tuple[Trained, Parts | DividedParts]:
    """A step on `count` devices with products in the dtype `name`, and its seconds by what they go to. Raises
    TfacctError for one that was not measured in any way."""
    check(subject, count, device, name, how)
    trained = Trained(work.context, work.batch, count, how.accumulate, how.recompute, name == "fp8")
    try:
        if how.mesh.ranks == 1:
            return trained, training_time.step(training_time.work_of(subject.ledger, trained), device, trained)
        _check_mesh(subject, count, device, name, how)
        shared = divided_time.work_of(subject.ledger, trained, how.mesh)
        return trained, divided_time.step(shared, device, trained, how.mesh, how.again)
    except NoKernelError as error:
        error.message = f"{subject.name}: {error.message}"
        raise


class Memory(NamedTuple):
    """Bytes of a training step on its fullest device.

    `least`: what every implementation needs: weights, optimizer state, gradients and the activations that matmuls read.
    Of one micro-batch gradients replace activations layer by layer, so that only the larger of the two is included.
    `counted`: what transformers' class needs, or None where that is not counted. `usable`: what there is.
    """

    least: int
    counted: int | None
    usable: int
    reason: str = ""

    @property
    def fits(self) -> bool | None:
        """False if no implementation fits, True if transformers' class does; else None, for kernels decide."""
        if self.least > self.usable:
            return False
        return True if self.counted is not None and self.counted <= self.usable else None


def memory(subject: LoadedModel, work: Workload, count: int, usable: int, how: Trains, *, fp8: bool = False) -> Memory:
    """Memory of an estimated step: all in bf16 with AdamW, the smallest recipe that was measured.

    Under FSDP all devices shard weights, gradients and optimizer state; under tensor and pipeline parallelism
    data-parallel replicas shard at most the optimizer state. With `fp8`, matmuls may save what they read in 8 bits.
    """
    mesh, sequences = how.mesh, work.batch
    parameters, shards = sum(subject.ledger.parameters().values()), count if mesh.ranks == 1 else mesh.ranks
    saved = training_time.least_saved(subject.ledger, work.axes(), recompute=how.recompute)
    in_flight = min(mesh.pp, how.accumulate)
    activations = (1 if fp8 else 2) * saved * in_flight // mesh.ranks
    gradients = GRADIENT_BYTES * parameters // shards
    least = WEIGHT_BYTES * parameters // shards + OPTIMIZER_BYTES * parameters // count
    least += gradients + activations if how.accumulate > 1 else max(gradients, activations)
    if mesh.ranks == 1:
        ranks = Mesh(fsdp=count) if count > 1 else None
    else:
        schedule: Schedule = "interleaved" if mesh.chunks > 1 else "1f1b"
        ranks = Mesh(mesh.tp, mesh.sp, pp=mesh.pp, chunks=mesh.chunks, dp=count // mesh.ranks, schedule=schedule)
        if mesh.pp > 1:
            sequences *= how.accumulate
            ranks = replace(ranks, microbatches=how.accumulate)
    recomputed = "full" if how.recompute else "attention" if how.recompute_attention else "none"
    recipe = Recipe(recompute=recomputed, gradient_accumulation=1 + (how.accumulate > 1 and mesh.pp == 1), mesh=ranks)
    try:
        return Memory(least, training_memory(subject, replace(work, batch=sequences), recipe.checked()).least, usable)
    except TfacctError as error:
        return Memory(least, None, usable, error.message.removeprefix(f"{subject.name}: "))


def fitting_options(
    subject: LoadedModel, work: Workload, count: int, device: devices.Device, how: Trains, usable: int
) -> dict[str, int | str] | None:
    """The first change of options after which a step fits: recomputation, smaller micro-batches, then more devices."""
    ways = [how] if how.recompute else [how, replace(how, recompute=True, recompute_attention=False)]
    batches = [work.batch] + [1 << power for power in reversed(range((work.batch - 1).bit_length()))]
    counts = [count << doubled for doubled in range(MOST_DOUBLINGS)]
    for devices_, batch, way in product(counts, batches, ways):
        if devices_ > devices.MOST or not device.links.known(devices_):
            continue
        room = memory(subject, replace(work, batch=batch), devices_, usable, way)
        if room.fits or (room.fits is None and room.counted is None):
            changed = {
                "on": (devices_ != count, f"{devices_}x{device.id}"),
                "batch": (batch != work.batch, batch),
                "recompute": (way != how, True),
            }
            return {name: value for name, (differs, value) in changed.items() if differs}
    return None


def validation(divided: bool) -> Validation:
    """Errors of measured steps: of those that tensor or pipeline parallelism divided, or of those under FSDP."""
    return VALIDATED["divided" if divided else "training", "step"]


def measured_alike(subject: LoadedModel, divided: bool) -> bool:
    """True of steps like the measured ones: MPT under FSDP, and any dense decoder as Megatron-LM ran GPT."""
    return divided or subject.family == "mpt"


def measured_link(link: Link | None) -> bool:
    """True of a link that measured steps used: NVLink within a node, and a network between such nodes."""
    return link is None or link.reach != "node"


def error_said(subject: LoadedModel, device: devices.Device, divided: bool, link: Link | None) -> str:
    """What an estimated step was measured against. `link`: of all devices."""
    if device.vendor != MEASURED:
        maker = device.vendor or "this maker"
        return f"Estimate. No step on devices of {maker} was measured, so its error is not known."
    if link is not None and not measured_link(link):
        return f"Estimate. No step {link.place} was measured, so its error is not known."
    error, reported = validation(divided), REPORTED["divided" if divided else "training", "step"]
    here = error.on.get(device.id, 0)
    if divided:
        where = f"{here:,} of them" if here else "none of them"
        unknown = "" if here else ", so its error here is not known"
        return (
            f"Estimate. GPT models under Megatron-LM (2021 and 2022): median error {units.percent(reported.median)} on"
            f" {reported.runs:,} steps, {where} on this device{unknown}."
        )
    if measured_alike(subject, divided):
        return (
            f"Estimate. MPT under FSDP (llm-foundry, 2023): median error {units.percent(reported.median)} on"
            f" {reported.runs:,} steps never fitted; {f'{here:,} steps' if here else 'no step'} on this device"
            f" {'were' if here else 'was'} fitted."
        )
    stacks = " and ".join(f"{units.percent(one.median, 0)} on {name}" for name, one in NEWER_STACKS.items())
    return f"Estimate by constants of MPT steps of 2023. Steps of 2024 to 2026: median error {stacks}."


def check(subject: LoadedModel, count: int, device: devices.Device, name: str, how: Trains) -> None:
    """Raises TfacctError for what was not measured in any way."""
    check_size(option("accumulate"), how.accumulate)
    _check_how(how)
    if how.tokens_total is not None:
        check_size(option("tokens_total"), how.tokens_total, most=10**15)
    if name not in DTYPES:
        raise UsageError(f"a training step is estimated in {' or '.join(DTYPES)}, not in {name}")
    if name not in device.peak:
        said = f"{device.id} has no {name} units"
        raise UsageError(
            said, f"ask in {option('dtype', 'bf16')}" if "bf16" in device.peak else "ask for another device"
        )
    if "bf16" not in device.peak:
        raise UsageError(f"{device.id} has no bf16 units", "ask for another device")
    if count > 1:
        device.link(count)
    if subject.ledger.experts:
        raise ConfigError(
            f"{subject.name}: no training step with experts was measured", "dense decoders have an estimate"
        )
    if subject.architecture.encoder is not None or subject.architecture.mtp is not None or not subject.keeps:
        raise ConfigError(f"{subject.name}: no estimate of its training step", "dense decoders have one")


def _check_mesh(subject: LoadedModel, count: int, device: devices.Device, name: str, how: Trains) -> None:
    """Raises TfacctError for a division that is none, or that was not measured."""
    mesh, blocks = how.mesh, sum(int(group.count) for group in subject.ledger.groups if group.numbers)
    if count % mesh.ranks:
        asked = f"{option('tp', mesh.tp)} and {option('pp', mesh.pp)} take {mesh.ranks:,} devices"
        raise UsageError(
            f"{asked}, which do not divide {'1 device' if count == 1 else f'{count:,} devices'}",
            f"give a multiple of {mesh.ranks:,}: {option('on', f'{mesh.ranks}x{device.id}')}",
        )
    if name != "bf16":
        raise UsageError(f"a divided step is estimated in bf16, not in {name}", option("dtype", "bf16"))
    if mesh.tp > (node := max(NODE, device.links.joined)):
        raise UsageError(f"{option('tp', mesh.tp)} is more than the {node} devices of a node", option("tp", node))
    check_heads(subject, mesh.tp)
    if mesh.pp * mesh.chunks > blocks:
        parts = f" and {option('pp_chunks', mesh.chunks)}" if mesh.chunks > 1 else ""
        raise UsageError(f"{option('pp', mesh.pp)}{parts}: {subject.name} has {blocks:,} blocks")


def _check_how(how: Trains) -> None:
    """Raises UsageError for options that change nothing, or contradict each other."""
    mesh = how.mesh
    for option_name, size in (("tp", mesh.tp), ("pp", mesh.pp), ("pp_chunks", mesh.chunks)):
        check_size(option(option_name), size)
    if mesh.sp and mesh.tp == 1:
        said = f"{option('sp', True)} divides tokens among the devices of {option('tp')}"
        raise UsageError(said, f"give their number: {option('tp', 8)}")
    if mesh.chunks > 1 and mesh.pp == 1:
        raise UsageError(
            f"{option('pp_chunks', mesh.chunks)} divides a stage of {option('pp')}",
            f"give their number: {option('pp', 8)}",
        )
    if how.recompute and how.recompute_attention:
        other = option("recompute_attention", True)
        raise UsageError(f"{option('recompute', True)} does not go with {other}", "leave one of the two out")
    if how.recompute_attention and mesh.ranks == 1:
        said = f"{option('recompute_attention', True)} was measured under {option('tp')} and {option('pp')} alone"
        raise UsageError(said, option("recompute", True))
