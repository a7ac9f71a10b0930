"""Time of the steps of parallel layouts, and their order: estimates, for layouts like those that were measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.devices import Device
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.timing import step_estimate
from tfacct.timing.placement import place
from tfacct.training.layout_search import Candidate, Estimate, SearchResult
from tfacct.training.recipe import Recipe

FSDP, MEGATRON = "FSDP", "Megatron-LM"
"""Stacks whose training steps were measured: each has a law of its own."""


class Times(ABC):
    """Estimates for the layouts of devices. `reason`: why the last layout without an estimate has none."""

    unit: str
    """What the seconds are of."""

    def __init__(self, model: LoadedModel, work: Workload, device: Device) -> None:
        self.model, self.work, self.device = model, work, device
        self.reason = ""
        if device.calibration is not None:
            raise UsageError(f"{device.id} was swept with the reference model: no layout of it has an estimate")

    def timed(self, one: Candidate) -> Candidate:
        """The same with its estimate, if it has one."""
        try:
            return one._replace(estimate=self.estimate(one))
        except TfacctError as error:
            self.reason = error.message.removeprefix(f"{self.model.name}: ")
            return one

    @abstractmethod
    def estimate(self, one: Candidate) -> Estimate:
        """The estimate. Raises TfacctError for a layout that has none."""

    def links(self, *counts: int) -> tuple[Link, ...]:
        """The links of so many devices, each once."""
        return tuple(self.device.link(count) for count in dict.fromkeys(counts) if count > 1)


class TrainingTimes(Times):
    """Training steps: under FSDP, or under tensor and pipeline parallelism as Megatron-LM runs them."""

    unit = "a step"

    def __init__(self, model: LoadedModel, work: Workload, device: Device, count: int, recipe: Recipe) -> None:
        super().__init__(model, work, device)
        self.recipe = recipe
        try:
            fsdp = step_estimate.timed_as(work, replace(recipe, mesh=Mesh(fsdp=count)), recipe.dtype)
        except UsageError as error:
            raise UsageError(error.message, f"leave {option('by', 'time')} out") from None
        step_estimate.check(model, device, fsdp)

    def estimate(self, one: Candidate) -> Estimate:
        mesh = one.mesh
        if mesh.sequence_shards > 1 or 1 < mesh.fsdp < mesh.ranks:
            raise UsageError("too few steps under such a layout were measured to compare it")
        how = replace(self.recipe, mesh=mesh, recompute=one.recompute, gradient_accumulation=one.times)
        trained = step_estimate.timed_as(replace(self.work, batch=one.batch), how, self.recipe.dtype)
        seconds = step_estimate.estimated(self.model, self.device, trained).seconds
        return Estimate(seconds, "", MEGATRON if trained.megatron else FSDP, self.links(mesh.tp, mesh.ranks))


class ServingTimes(Times):
    """One new token of each sequence, under tensor parallelism."""

    unit = "a token"

    def __init__(
        self, model: LoadedModel, work: Workload, device: Device, dtype: str | None, kv_dtype: str | None
    ) -> None:
        super().__init__(model, work, device)
        self.dtype, self.kv_dtype = dtype, kv_dtype
        self.placed = {1: place(model, 1, device, dtype=dtype, kv_dtype=kv_dtype)}

    def estimate(self, one: Candidate) -> Estimate:
        tp = one.mesh.tp
        if one.mesh.pp > 1:
            raise UsageError("no pipeline stages that serve were measured")
        if one.mesh.ep > 1:
            raise UsageError(f"expert parallelism is estimated by `tfacct time` with {option('ep')}, on all devices")
        if tp not in self.placed:
            self.placed[tp] = place(self.model, tp, self.device, dtype=self.dtype, kv_dtype=self.kv_dtype)
        work = replace(self.work, batch=one.batch, tokens=1, logits="last")
        on = self.device.id if tp == 1 else f"{tp}x{self.device.id}"
        given = {"dtype": self.dtype, "kv-dtype": self.kv_dtype}
        options = [f"--on {on} --ctx {work.context} --batch {one.batch}"]
        options += [f"--{name} {value}" for name, value in given.items() if value is not None]
        return Estimate(self.placed[tp].host.step(work).seconds, " ".join(options), links=self.links(tp))


def times_of(
    model: LoadedModel,
    work: Workload,
    device: Device | None,
    count: int,
    recipe: Recipe | None,
    dtype: str | None,
    kv_dtype: str | None,
    *,
    needed: bool = True,
) -> tuple[Times | None, str]:
    """Estimates for the layouts of a training step, or of serving; or the reason why there are none. Raises TfacctError
    if they are needed."""
    if device is None:
        raise UsageError(
            f"{option('by', 'time')} needs a device: {option('on')} names only bytes", option("on", "64xh100")
        )
    try:
        if recipe is not None:
            return TrainingTimes(model, work, device, count, recipe), ""
        return ServingTimes(model, work, device, dtype, kv_dtype), ""
    except TfacctError as error:
        if needed:
            raise
        return None, error.message.removeprefix(f"{model.name}: ")


# The order of layouts.

Order: TypeAlias = Literal["time", "memory", "sent"]
"""What orders layouts: estimated seconds, the bytes that a rank needs, or those that it sends."""
Key: TypeAlias = Callable[[Candidate], tuple[Any, ...]]


def _seconds(one: Candidate) -> tuple[bool, str, float]:
    """Seconds of two laws are not compared; layouts without an estimate come last."""
    return (True, "", 0) if one.estimate is None else (False, one.estimate.stack, one.estimate.seconds)


ORDERS: Mapping[Order, Key] = {
    "time": lambda one: (*_seconds(one), one.sent, one.bytes),
    "memory": lambda one: (one.bytes, one.sent),
    "sent": lambda one: (one.sent, one.bytes),
}
"""By what layouts are ordered. The ways in which one fits are compared by all but the last: of equal ones the first
recomputes least."""


def ranking(
    found: SearchResult, estimates: Times | None, by: Order | None, reason: str = ""
) -> tuple[Order, list[Candidate], str]:
    """The order, a candidate of each layout that fits, the best first, and the reason why no time is estimated, if
    `reason` gives none. Raises UsageError where time was asked for and no layout has an estimate."""
    ways, order = found.fitting, by or ("sent" if estimates is None else "time")
    if estimates is not None:
        ways = [list(map(estimates.timed, each)) for each in ways]
        if ways and all(one.estimate is None for each in ways for one in each):
            reason = estimates.reason
            if by is not None:
                none = f"{estimates.model.name}: no layout that fits has an estimate of its time"
                raise UsageError(f"{none}: {reason}", f"leave {option('by', 'time')} out")
            order = "sent"
    key = ORDERS[order]
    return order, sorted((min(each, key=lambda one: key(one)[:-1]) for each in ways), key=key), reason
