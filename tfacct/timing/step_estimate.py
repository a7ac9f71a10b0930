"""Time of a training step on devices that share it: which steps have an estimate, their memory, the measured error."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import NamedTuple, cast, get_args

from tfacct.accounts.metrics import Point, Recompute
from tfacct.accounts.step_flops import backward_flops, forward_flops, recomputed_flops
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import divisors
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading import devices
from tfacct.loading.links import NODE, Link
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.timing import fsdp_time, megatron_time
from tfacct.timing.fsdp_time import RECENT, TRAINING, UNITS, Parts, Trained, TrainingConstants
from tfacct.timing.kernels import NoKernelError
from tfacct.timing.megatron_time import MegatronLayout
from tfacct.timing.placement import check_heads
from tfacct.timing.utilization import Convention, check_positive, flops_per_token, peak_of, utilization
from tfacct.timing.validated import (
    ADAPTERS,
    CONTEXT,
    EXPERTS_BALANCED,
    IN_NVFP4,
    MODELS,
    NEWER_HIGH,
    NEWER_LAYOUTS,
    NEWER_LOW,
    SHARDED,
    VALIDATED,
    Validation,
    model_kind,
    unmeasured,
)
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe, micro_batches

REACHES = ("domain", "network")
"""Reach of the links that measured steps used: NVLink within a node, and a network between such nodes."""
DAY = 86_400
MEASURED_TOGETHER = ({EXPERTS_BALANCED, IN_NVFP4}, {CONTEXT, SHARDED})
"""Groups of steps since 2024 that measured steps are of at once: they count as the first."""
MOST_DOUBLINGS = 8
"""How often the number of devices is doubled in search of a step that fits."""


@record
class StepOptions:
    """How a step is run: micro-batches before an update, recomputation, and the layout, None for FSDP. `tokens_total`:
    tokens of the whole training. `mfu`: the utilization that the user states, in place of an estimate. `ep`: devices
    that share the experts. `frozen`: only adapters are trained."""

    accumulate: int = 1
    recompute: Recompute = "none"
    tokens_total: int | None = None
    mesh: MegatronLayout | None = None
    mfu: float | None = None
    ep: int = 1
    frozen: bool = False

    @property
    def ranks(self) -> int:
        """Number of devices that share a batch."""
        return 1 if self.mesh is None else self.mesh.ranks

    def trained(self, work: Workload, count: int, dtype: str) -> Trained:
        """The step on `count` devices, with the matmuls of layers in this dtype."""
        return Trained(work.context, work.batch, count, self.accumulate, self.recompute, dtype, self.ep, self.frozen)


def estimated(
    model: LoadedModel, work: Workload, count: int, device: devices.Device, name: str, how: StepOptions
) -> tuple[Trained, Parts]:
    """A step on `count` devices with products in the dtype `name`, and its seconds by what they go to. Raises
    TfacctError for one that was not measured in any way."""
    check(model, count, device, name, how)
    trained = how.trained(work, count, name)
    try:
        if how.mesh is not None:
            _check_mesh(model, device, how.mesh)
        micro_batch = fsdp_time.work_of(model.ledger, trained, 1 if how.mesh is None else how.mesh.tp)
    except NoKernelError as error:
        error.message = f"{model.name}: {error.message}"
        raise
    if how.mesh is None:
        return trained, fsdp_time.step(micro_batch, device, trained, fsdp_constants(model))
    return trained, megatron_time.step(micro_batch, device, trained, how.mesh)


def fsdp_constants(model: LoadedModel) -> TrainingConstants:
    """Constants of a model's step under FSDP."""
    return TRAINING if model.family == "mpt" else RECENT


def at_mfu(
    model: LoadedModel, work: Workload, count: int, device: devices.Device, name: str, how: StepOptions
) -> tuple[Trained, Parts]:
    """A step on `count` devices at the share `how.mfu` of the bf16 peak, by all its FLOPs without recomputation. Raises
    TfacctError."""
    check_positive("mfu", how.mfu, most=1)
    check_size(option("gradient_accumulation"), how.accumulate)
    if how.mesh is not None:
        _check_mesh(model, device, how.mesh)
    trained = how.trained(work, count, name)
    each = flops_per_token(Point(model.ledger, work, train=True)) * trained.tokens / how.ranks
    return trained, Parts(step=float(each) / (peak_of(device)[1] * float(how.mfu or 1)))


class Memory(NamedTuple):
    """Bytes of a training step on its fullest device.

    `least`: what every implementation needs: weights, optimizer state, gradients and the activations that matmuls read.
    Of one micro-batch gradients replace activations layer by layer, so that only the larger of the two is included.
    `counted`: what transformers' class needs, or None where that is not counted; `exact`: to the byte. `usable`: what
    there is.
    """

    least: int
    counted: int | None
    usable: int
    reason: str = ""
    exact: bool = False

    @property
    def fits(self) -> bool | None:
        """False if no implementation fits, True if transformers' class does; else None, for kernels decide."""
        if self.least > self.usable:
            return False
        return True if self.counted is not None and self.counted <= self.usable else None


def memory(model: LoadedModel, work: Workload, recipe: Recipe, usable: int, dtype: str = "bf16") -> Memory:
    """Memory of an estimated step. Matmuls may save what they read in 8 bits if their `dtype` is narrower than bf16.
    Raises UsageError for a step without an estimate."""
    micro, how = timed_as(work, recipe)
    count = 1 if recipe.mesh is None else recipe.mesh.ranks
    trained, mesh = how.trained(micro, count, dtype), how.mesh
    in_flight = 1 if mesh is None else min(mesh.pp, how.accumulate)
    shards = None if mesh is None else count if mesh.fsdp > 1 else mesh.shards
    least = fsdp_time.least_bytes(model.ledger, micro.axes(), trained, how.ranks, in_flight, shards)
    try:
        found = training_memory(model, work, recipe.checked())
        return Memory(least, found.least, usable, exact=found.exact)
    except TfacctError as error:
        return Memory(least, None, usable, error.message.removeprefix(f"{model.name}: "))


def fitting_options(
    model: LoadedModel, work: Workload, recipe: Recipe, device: devices.Device, usable: int
) -> dict[str, int | str] | None:
    """The first change of options after which a step fits: recomputation, smaller and more micro-batches, then more
    devices."""
    ways = [recipe] if recipe.recompute == "full" else [recipe, replace(recipe, recompute="full")]
    mesh, (size, times) = recipe.mesh or Mesh(), micro_batches(work, recipe)
    for doubled, each, way in product(range(MOST_DOUBLINGS), reversed(divisors([size])), ways):
        count, accumulate = mesh.ranks << doubled, times * size // each
        if count > devices.MOST or not device.links.known(count):
            continue
        shards = mesh.fsdp > 1 or mesh.ranks == 1
        larger = replace(mesh, fsdp=mesh.fsdp << doubled) if shards else replace(mesh, dp=mesh.dp << doubled)
        if mesh.pp > 1:
            way, at = replace(way, mesh=replace(larger, microbatches=accumulate)), work
        else:
            at = replace(work, batch=each)
            way = replace(way, mesh=larger if count > 1 else None, gradient_accumulation=accumulate)
        needed = memory(model, at, way, usable)
        if needed.fits or (needed.fits is None and needed.counted is None):
            changed: dict[str, tuple[bool, int | str]] = {
                "on": (count != mesh.ranks, f"{count}x{device.id}"),
                "batch": (each != size, each),
                "gradient_accumulation": (each != size, accumulate),
                "recompute": (way.recompute != recipe.recompute, "full"),
            }
            return {name: value for name, (differs, value) in changed.items() if differs}
    return None


@record
class StepEstimate:
    """The estimate of a training step on `trained.devices` devices; `work` and `recipe` as for its memory."""

    model: LoadedModel
    work: Workload
    recipe: Recipe
    device: devices.Device
    trained: Trained
    dtype: str
    parts: Parts
    how: StepOptions
    memory: Memory

    @property
    def megatron(self) -> bool:
        """True if devices share more than weights, gradients and optimizer state; False under FSDP alone."""
        return self.how.mesh is not None

    @property
    def validation(self) -> Validation:
        """Errors on measured steps: under tensor or pipeline parallelism, or under FSDP."""
        return VALIDATED["divided" if self.megatron else "training", "step"]

    @property
    def alike(self) -> bool:
        """True if steps like this one are those that the constants were fitted to."""
        return self.newer is None and measured_alike(self.model, self.device, self.megatron)

    @property
    def layout(self) -> MegatronLayout:
        """How devices share a batch. Under FSDP alone each has a batch to itself."""
        return self.how.mesh or MegatronLayout()

    @property
    def newer(self) -> str | None:
        """The group of steps since 2024 that this one is like, if it is not like those that the constants were fitted
        to in what it does."""
        return newer_group(self.model, self.layout, self.trained.dtype, frozen=self.trained.frozen)

    @property
    def link(self) -> Link | None:
        """The link of all devices, over which they gather weights and sum gradients; None of one device."""
        return None if self.trained.devices == 1 else self.device.link(self.trained.devices)

    @property
    def link_tp(self) -> Link | None:
        """The link of the devices that share widths; None of one."""
        return None if self.layout.tp == 1 else self.device.link(self.layout.tp)

    @property
    def rate(self) -> float:
        """Tokens per second of one device."""
        return self.trained.tokens / self.how.ranks / self.parts.seconds

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds between which 80% of such steps lie; None where nothing alike was measured."""
        error = self.validation
        if self.how.mfu is not None or unmeasured_step(self.device, self.link, self.newer):
            return None
        if self.alike and self.megatron and self.device.id not in error.on:
            return None
        low, high = (error.low, error.high) if self.alike else (NEWER_LOW, NEWER_HIGH)
        return self.parts.seconds * low, self.parts.seconds * high

    def mfu(self, convention: Convention) -> float | None:
        """Utilization of the bf16 peak; None by a formula that the model has not."""
        point = Point(self.model.ledger, self.work, train=True)
        try:
            each = flops_per_token(point, convention)
        except TfacctError:
            return None
        return utilization(float(each), self.rate, self.device.peak["bf16"])

    @property
    def usual(self) -> float:
        """Seconds of the step at the median utilization of measured runs; that of Megatron-LM counts recomputation."""
        mfu = self.mfu("full")
        assert mfu is not None
        if not self.megatron:
            return self.parts.seconds * mfu / fsdp_time.UTILIZATION
        ledger, at, again = self.model.ledger, self.work.axes(), self.how.recompute
        once = forward_flops(ledger, at) + backward_flops(ledger, at)
        more = recomputed_flops(ledger, at, attention=again == "attention") if again != "none" else 0
        return self.parts.seconds * mfu * float(Fraction(once + more, once)) / megatron_time.UTILIZATION

    @property
    def days(self) -> float | None:
        """Days for all tokens."""
        if self.how.tokens_total is None:
            return None
        return self.how.tokens_total / (self.rate * self.trained.devices) / DAY


def newer_group(model: LoadedModel, mesh: MegatronLayout, dtype: str, *, frozen: bool) -> str | None:
    """The group of steps since 2024 that a step is like, or the names of several of which none was measured together.
    None for steps that the older ones have too."""
    groups = {
        EXPERTS_BALANCED: bool(model.ledger.experts),
        ADAPTERS: frozen,
        CONTEXT: mesh.cp > 1,
        SHARDED: mesh.fsdp > 1,
        IN_NVFP4: dtype == "nvfp4",
    }
    found = [name for name, so in groups.items() if so]
    return found[0] if set(found) in MEASURED_TOGETHER else " and ".join(found) or None


def unmeasured_step(device: devices.Device, link: Link | None, newer: str | None) -> str:
    """The reason why the error of a step is not known; empty where such steps were measured. `link`: of all devices.
    `newer`: from `newer_group`."""
    if newer is not None and newer not in NEWER_LAYOUTS:
        return f"No step {newer} was measured"
    return unmeasured("step", device, link, REACHES)


def measured_alike(model: LoadedModel, device: devices.Device, megatron: bool) -> bool:
    """True for steps like the fitted ones: MPT under FSDP, and any dense decoder as Megatron-LM ran GPT on A100s."""
    return "fp8" not in device.peak if megatron else model.family == "mpt"


def step_estimate(
    model: LoadedModel,
    work: Workload,
    recipe: Recipe,
    where: MemoryLimit,
    name: str,
    *,
    tokens_total: int | None = None,
    mfu: float | None = None,
) -> StepEstimate:
    """A step on devices with matrix products in the dtype `name`. Raises TfacctError."""
    assert where.device is not None
    micro, found = timed_as(work, recipe)
    how = replace(found, tokens_total=tokens_total, mfu=mfu)
    timed = estimated if mfu is None else at_mfu
    trained, parts = timed(model, micro, where.count, where.device, name, how)
    needed = memory(model, work, recipe, where.usable, name)
    return StepEstimate(model, work, recipe, where.device, trained, name, parts, how, needed)


def timed_as(work: Workload, recipe: Recipe) -> tuple[Workload, StepOptions]:
    """A micro-batch of a step, and how the step runs. Raises UsageError for one unlike those that were measured."""
    mesh = recipe.mesh or Mesh()
    megatron = mesh.fsdp != mesh.ranks
    unlike = {
        option("weights", recipe.weights_dtype): recipe.weights_dtype == "nf4",
        option("optimizer", recipe.optimizer): recipe.optimizer != Recipe().optimizer,
        option("attention", "eager"): recipe.attention == "eager",
        "torch.autocast": recipe.autocast,
        option("packing", True): recipe.packing,
        option("offload", recipe.offload): recipe.offload is not None,
        option("recompute", recipe.recompute): recipe.recompute not in get_args(Recompute)
        and bool(recipe.recomputed_modules),
        option("ulysses"): mesh.ulysses > 1,
        f"{option('fsdp')} and {option('dp')}": mesh.fsdp > 1 and mesh.dp > 1,
        option("zero", mesh.zero): mesh.zero > 1,
        "data parallelism alone": mesh.dp == mesh.ranks > 1 and mesh.ep == 1,
        option("schedule", mesh.schedule): mesh.schedule == "zero-bubble",
    }
    for name in (name for name, so in unlike.items() if so):
        raise UsageError(f"no training step with {name} was measured", "`tfacct train` counts its memory")
    size, count = micro_batches(work, recipe)
    layout = MegatronLayout(mesh.tp, mesh.sp, mesh.pp, mesh.chunks, mesh.cp, mesh.fsdp) if megatron else None
    recompute, frozen = cast("Recompute", recipe.recompute), recipe.lora is not None
    return replace(work, batch=size), StepOptions(count, recompute, mesh=layout, ep=mesh.ep, frozen=frozen)


def check(model: LoadedModel, count: int, device: devices.Device, name: str, how: StepOptions) -> None:
    """Raises TfacctError for what was not measured in any way."""
    check_size(option("gradient_accumulation"), how.accumulate)
    if how.tokens_total is not None:
        check_size(option("total_tokens"), how.tokens_total, most=10**15)
    if name not in UNITS:
        raise UsageError(f"a training step is estimated in {listed(UNITS)}, not in {name}")
    if UNITS[name] not in device.peak:
        problem = f"{device.id} has no {UNITS[name]} units"
        raise UsageError(
            problem, f"ask in {option('dtype', 'bf16')}" if "bf16" in device.peak else "ask for another device"
        )
    if "bf16" not in device.peak:
        raise UsageError(f"{device.id} has no bf16 units", "ask for another device")
    if count > 1:
        device.link(count)
    if (kind := model_kind(model.ledger)) not in ("dense", "experts"):
        raise ConfigError(
            f"{model.name}: training time of {MODELS[kind]} is not supported",
            "supported: dense and MoE decoders; `tfacct train` gives the memory",
        )
    if model.architecture.encoder is not None or model.architecture.mtp is not None or not model.has_cache:
        raise ConfigError(f"{model.name}: its training time is not supported", "supported: dense and MoE decoders")


def _check_mesh(model: LoadedModel, device: devices.Device, mesh: MegatronLayout) -> None:
    """Raises TfacctError for a layout that the model does not divide, or that was not measured."""
    blocks = sum(int(group.count) for group in model.ledger.groups if group.numbers)
    if mesh.tp > (node := max(NODE, device.links.joined)):
        raise UsageError(f"{option('tp', mesh.tp)} is more than the {node} devices of a node", option("tp", node))
    check_heads(model, mesh.tp)
    if mesh.pp * mesh.chunks > blocks:
        parts = f" and {option('pp_chunks', mesh.chunks)}" if mesh.chunks > 1 else ""
        raise UsageError(f"{option('pp', mesh.pp)}{parts}: {model.name} has {blocks:,} blocks")
