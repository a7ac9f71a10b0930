"""Time of a training step on devices that share it: which steps have an estimate, their memory, the measured error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, cast, get_args

from tfacct.accounts.metrics import Point, flops_of
from tfacct.accounts.step_flops import How, recomputed_flops
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.base.units import percent
from tfacct.ledger.einsum import divisors
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading import devices
from tfacct.loading.links import Link
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.support import check_axes, check_sizes
from tfacct.timing import training_time
from tfacct.timing.placement import unsupported_part
from tfacct.timing.training_time import MEGATRON, MPT, RECENT, Parts, Trained, TrainingConstants
from tfacct.timing.utilization import Convention, check_positive, flops_per_token, peak_of
from tfacct.timing.validated import (
    BASELINE,
    MODELS,
    NEWER_ENDS,
    NEWER_LAYOUTS,
    VALIDATED,
    Validation,
    model_kind,
    unmeasured_step,
)
from tfacct.training.memory import CHANGES, changes, training_memory
from tfacct.training.recipe import Recipe, micro_batches

DAY = 86_400
MOST_DOUBLINGS = 8
"""How often the number of devices is doubled in search of a step that fits."""


def estimated(model: LoadedModel, device: devices.Device, trained: Trained) -> Parts:
    """Seconds of a step by what they go to. Raises TfacctError for one that was not measured in any way."""
    check(model, device, trained)
    work = training_time.work_of(model.ledger, trained)
    return training_time.step(work, device, trained, constants_of(model, trained))


def constants_of(model: LoadedModel, trained: Trained) -> TrainingConstants:
    """Constants of the stack that a model's step is estimated by."""
    return MEGATRON if trained.megatron else MPT if model.family == "mpt" else RECENT


def at_mfu(model: LoadedModel, device: devices.Device, trained: Trained, mfu: float) -> Parts:
    """Seconds of a step at a share of the bf16 peak, by all its FLOPs without recomputation. Raises TfacctError."""
    check_positive("mfu", mfu, most=1)
    if trained.frozen:
        what = f"{option('mfu', mfu)} counts gradients of all weights, and {option('lora')} computes few of them"
        raise UsageError(what, f"leave {option('mfu')} out: the step is estimated")
    _check_layout(model, device, trained)
    each = flops_per_token(Point(model.ledger, trained.work, train=True)) * trained.tokens / trained.replica
    return Parts(step=float(each) / (peak_of(device)[1] * mfu))


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
    """Memory of an estimated step with matmuls in `dtype`. Raises UsageError for a step without an estimate."""
    least = training_time.least_bytes(model.ledger, timed_as(work, recipe, dtype))
    try:
        found = training_memory(model, work, recipe.checked())
        return Memory(least, found.least, usable, exact=found.exact)
    except TfacctError as error:
        return Memory(least, None, usable, error.message.removeprefix(f"{model.name}: "))


@record
class StepEstimate:
    """The estimate of a training step; `work` and `recipe` as for its memory. `alike`: the measured steps that it is
    like. `link`: of all devices, over which they gather weights and sum gradients; `link_tp`: of those that share
    widths; None of one. `total_tokens`: tokens of the whole training. `stated_mfu`: the utilization that the user
    states, in place of an estimate."""

    model: LoadedModel
    work: Workload
    recipe: Recipe
    device: devices.Device
    trained: Trained
    alike: str
    link: Link | None
    link_tp: Link | None
    parts: Parts
    memory: Memory
    total_tokens: int | None
    stated_mfu: float | None

    @property
    def validation(self) -> Validation | None:
        """Errors on the steps that the constants were fitted to, if they are like this one."""
        return VALIDATED.get((self.alike, "step"))

    @property
    def rate(self) -> float:
        """Tokens per second of one device."""
        return self.trained.tokens / self.trained.replica / self.parts.seconds

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds between which 80% of such steps lie; None where nothing alike was measured."""
        error = self.validation
        if self.stated_mfu is not None or unmeasured_step(self.device, self.link, self.alike):
            return None
        if error is not None and self.trained.megatron and self.device.id not in error.on:
            return None
        low, high = NEWER_ENDS if error is None else (error.low, error.high)
        return self.parts.seconds * low, self.parts.seconds * high

    def mfu(self, convention: Convention) -> float | None:
        """Utilization of the bf16 peak; None by a formula that the model has not, and of frozen weights, whose
        gradients it would count."""
        if self.trained.frozen:
            return None
        point = Point(self.model.ledger, self.work, train=True)
        try:
            each = flops_per_token(point, convention)
        except TfacctError:
            return None
        return float(each) * self.rate / self.device.peak["bf16"]

    @property
    def mfu_words(self) -> str:
        """The utilization by full attention after a comma: `, 41.5% MFU`; empty if there is none."""
        mfu = self.mfu("full")
        return "" if mfu is None else f", {percent(mfu)} MFU"

    @property
    def usual(self) -> float | None:
        """Seconds of the step at the median utilization of measured runs; that of Megatron-LM counts recomputation.
        None without a utilization, or if one is stated."""
        mfu, point = self.mfu("full"), Point(self.model.ledger, self.work, train=True)
        if mfu is None or self.stated_mfu is not None:
            return None
        seconds: float = self.parts.seconds * mfu / BASELINE[self.trained.megatron]["mfu"]
        again = recomputed_flops(point.ledger, point.at, self.trained.recompute) if self.trained.megatron else 0
        return seconds * float(1 + Fraction(int(again), int(flops_of(point))))

    @property
    def days(self) -> float | None:
        """Days for all tokens."""
        if self.total_tokens is None:
            return None
        return self.total_tokens / (self.rate * self.trained.mesh.ranks) / DAY


def steps_alike(model: LoadedModel, device: devices.Device, trained: Trained) -> str:
    """The measured steps that a step is like: the class of `VALIDATED` whose steps the constants were fitted to, that
    of the stacks since 2024, or a group of their other layouts; or the names of several groups that no step is of."""
    mesh, (layouts, context, sharded, nvfp4, lora, experts) = trained.mesh, NEWER_LAYOUTS
    groups = {
        experts: bool(model.ledger.experts),
        lora: trained.frozen,
        context: mesh.cp > 1,
        sharded: mesh.fsdp > 1 and trained.megatron,
        nvfp4: trained.dtype == "nvfp4",
    }
    if found := [name for name, so in groups.items() if so]:
        return found[0] if found[1:] in ([], [NEWER_LAYOUTS[found[0]].also]) else " and ".join(found)
    if trained.megatron:
        return layouts if "fp8" in device.peak else "divided"
    return "training" if model.family == "mpt" else "stacks"


def step_estimate(
    model: LoadedModel,
    work: Workload,
    recipe: Recipe,
    where: MemoryLimit,
    dtype: str,
    *,
    total_tokens: int | None = None,
    mfu: float | None = None,
) -> StepEstimate:
    """A step on devices with matmuls in `dtype`. Raises TfacctError."""
    device = where.device
    assert device is not None
    if total_tokens is not None:
        check_size(option("total_tokens"), total_tokens, most=10**15)
    trained = timed_as(work, recipe, dtype)
    parts = estimated(model, device, trained) if mfu is None else at_mfu(model, device, trained, mfu)
    needed = memory(model, work, recipe, where.usable, dtype)
    alike, mesh = steps_alike(model, device, trained), trained.mesh
    link, link_tp = (None if count == 1 else device.link(count) for count in (mesh.ranks, mesh.tp))
    return StepEstimate(model, work, recipe, device, trained, alike, link, link_tp, parts, needed, total_tokens, mfu)


def fsdp_step(model: LoadedModel, work: Workload, where: MemoryLimit, dtype: str) -> StepEstimate | None:
    """A step of all these sequences under FSDP, without recomputation, in the largest micro-batches that fit. None if
    none fits, or if there is no estimate."""
    each, rest = divmod(work.batch, where.count)
    mesh = Mesh(fsdp=where.count) if where.count > 1 else None
    for batch in () if rest else reversed(divisors([each])):
        at, recipe = replace(work, batch=batch), Recipe(mesh=mesh, gradient_accumulation=each // batch)
        try:
            if memory(model, at, recipe, where.usable, dtype).fits:
                return step_estimate(model, at, recipe, where, dtype)
        except TfacctError:
            return None
    return None


def fitting_options(one: StepEstimate) -> dict[str, str] | None:
    """The first change of options after which a step fits: the one that `train` suggests, if it costs FLOPs alone; or
    recomputation, on more devices if necessary."""
    model, work, recipe, usable = one.model, one.work, one.recipe, one.memory.usable
    limit, tried = MemoryLimit(usable), [each for each in CHANGES if not each[1]]
    with suppress(TfacctError):  # its class is not counted
        for change in changes(training_memory(model, work, recipe.checked()), usable, tried):
            with suppress(UsageError):
                if change["fits"] and not limit.is_tight(change["peak_bytes"]):
                    timed_as(work, change["memory"].recipe, recipe.dtype)
                    return dict(change["set"])
    mesh = one.trained.mesh
    for doubled in range(MOST_DOUBLINGS):
        if (count := mesh.ranks << doubled) > devices.MOST or not one.device.links.known(count):
            continue
        shards = mesh.fsdp > 1 or mesh.ranks == 1
        larger = replace(mesh, fsdp=mesh.fsdp << doubled) if shards else replace(mesh, dp=mesh.dp << doubled)
        needed = memory(model, work, replace(recipe, recompute="full", mesh=larger if count > 1 else None), usable)
        if needed.fits or (needed.fits is None and needed.counted is None):
            changed = {"on": f"{count}x{one.device.id}"} if doubled else {}
            return changed | ({} if recipe.recompute == "full" else {"recompute": "full"})
    return None


def timed_as(work: Workload, recipe: Recipe, dtype: str) -> Trained:
    """The step with matmuls in `dtype` as it is timed. Raises UsageError for one unlike those that were measured."""
    mesh = recipe.mesh or Mesh()
    unlike = {
        option("weights", recipe.weights_dtype): recipe.weights_dtype == "nf4",
        option("optimizer", recipe.optimizer): recipe.optimizer != Recipe().optimizer,
        option("attention", "eager"): recipe.attention == "eager",
        "torch.autocast": recipe.autocast,
        option("packing", True): recipe.packing,
        option("offload", recipe.offload): recipe.offload is not None,
        option("recompute", recipe.recompute): recipe.recompute not in get_args(How),
        option("ulysses"): mesh.ulysses > 1,
        f"{option('fsdp')} and {option('dp')}": mesh.fsdp > 1 and mesh.dp > 1,
        option("zero", mesh.zero): mesh.zero > 1,
        "data parallelism alone": mesh.dp == mesh.ranks > 1 and mesh.ep == 1,
        option("schedule", mesh.schedule): mesh.schedule == "zero-bubble",
    }
    for name in (name for name, so in unlike.items() if so):
        raise UsageError(f"no training step with {name} was measured", "`tfacct train` counts its memory")
    batch, count = micro_batches(work, recipe)
    recompute, chunked = cast("How", recipe.recompute), recipe.loss == "chunked"
    return Trained(replace(work, batch=batch), mesh, count, recompute, dtype, recipe.lora is not None, chunked)


def check(model: LoadedModel, device: devices.Device, trained: Trained) -> None:
    """Raises TfacctError for what was not measured in any way, or for a layout that the model does not divide."""
    if trained.dtype not in training_time.UNITS:
        raise UsageError(f"a training step is estimated in {listed(training_time.UNITS)}, not in {trained.dtype}")
    for units in (training_time.UNITS[trained.dtype], "bf16"):
        if units not in device.peak:
            instead = f"use {option('dtype', 'bf16')}" if "bf16" in device.peak else "choose another device"
            raise UsageError(f"{device.id} has no {units} units", instead)
    if trained.mesh.ranks > 1:
        device.link(trained.mesh.ranks)
    kind = model_kind(model.ledger)
    odd = unsupported_part(model) or (None if kind in ("dense", "experts") else MODELS[kind])
    if odd is not None:
        raise ConfigError(
            f"{model.name}: training time of {odd} is not supported",
            "supported: dense and MoE decoders; `tfacct train` gives the memory",
        )
    _check_layout(model, device, trained)


def _check_layout(model: LoadedModel, device: devices.Device, trained: Trained) -> None:
    """Raises TfacctError for a layout that the model does not divide, or that was not measured."""
    mesh = trained.mesh
    if mesh.tp > (node := device.links.node):
        raise UsageError(f"{option('tp', mesh.tp)} is more than the {node} devices of a node", option("tp", node))
    check_axes(model, mesh)
    check_sizes(model, mesh, trained.work.axes())
