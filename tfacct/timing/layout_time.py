"""Time of the steps of parallel layouts, and their order: estimates, for layouts like those that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Literal, TypeAlias

from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option, typed_options
from tfacct.ledger.workload import Workload
from tfacct.loading.devices import Device
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.timing import step_estimate
from tfacct.timing.placement import Deployment, Placement
from tfacct.training.layout_search import Candidate, Estimate, SearchResult
from tfacct.training.recipe import Recipe

FSDP, MEGATRON = "FSDP", "Megatron-LM"
"""Stacks whose training steps were measured: each has a law of its own."""


class Times:
    """Estimates for the layouts of devices, by an `estimate` that raises TfacctError for a layout that has none.
    `reason`: why the last layout without an estimate has none. `placed`: a model that serves, by tensor-parallel size.
    """

    def __init__(
        self,
        model: LoadedModel,
        device: Device,
        estimate: Callable[[Candidate], Estimate],
        placed: Mapping[int, Placement] | None = None,
    ) -> None:
        self.model, self.device, self.estimate, self.placed = model, device, estimate, placed
        self.reason = ""

    def timed(self, one: Candidate) -> Candidate:
        """The same with its estimate, if it has one."""
        try:
            return one._replace(estimate=self.estimate(one))
        except TfacctError as error:
            self.reason = error.message.removeprefix(f"{self.model.name}: ")
            return one


def _links(device: Device, *counts: int) -> tuple[Link, ...]:
    """The links of so many devices, each once."""
    return tuple(device.link(count) for count in dict.fromkeys(counts) if count > 1)


def training_times(model: LoadedModel, work: Workload, device: Device, count: int, recipe: Recipe) -> Times:
    """Training steps: under FSDP, or under tensor and pipeline parallelism as Megatron-LM runs them. Raises
    TfacctError."""
    try:
        fsdp = step_estimate.timed_as(work, replace(recipe, mesh=Mesh(fsdp=count)), recipe.dtype)
    except UsageError as error:
        raise UsageError(error.message, f"leave {option('by', 'time')} out") from None
    step_estimate.check(model, device, fsdp)

    def estimate(one: Candidate) -> Estimate:
        mesh = one.mesh
        if mesh.sequence_shards > 1 or 1 < mesh.fsdp < mesh.ranks:
            raise UsageError("too few steps under such a layout were measured to compare it")
        how = replace(recipe, mesh=mesh, recompute=one.recompute, gradient_accumulation=one.times)
        trained = step_estimate.timed_as(replace(work, batch=one.batch), how, recipe.dtype)
        seconds = step_estimate.estimated(model, device, trained).seconds
        return Estimate(seconds, "", MEGATRON if trained.megatron else FSDP, _links(device, mesh.tp, mesh.ranks))

    return Times(model, device, estimate)


def serving_times(model: LoadedModel, work: Workload, device: Device, dtype: str | None, kv_dtype: str | None) -> Times:
    """One new token of each sequence, under tensor parallelism. Raises TfacctError."""
    how = Deployment(dtype=dtype, kv_dtype=kv_dtype)
    placed = {1: how.place(model, 1, device)}

    def estimate(one: Candidate) -> Estimate:
        tp = one.mesh.tp
        if one.mesh.pp > 1:
            raise UsageError("no pipeline stages that serve were measured")
        if one.mesh.ep > 1:
            raise UsageError(f"expert parallelism is estimated by `tfacct time` with {option('ep')}, on all devices")
        if tp not in placed:
            placed[tp] = how.place(model, tp, device)
        on = device.id if tp == 1 else f"{tp}x{device.id}"
        given = {"on": on, "ctx": work.context, "batch": one.batch, "dtype": dtype, "kv_dtype": kv_dtype}
        step = placed[tp].host.step(replace(work, batch=one.batch, tokens=1, logits="last"))
        return Estimate(step.seconds, typed_options(given.items()).strip(), links=_links(device, tp))

    return Times(model, device, estimate, placed)


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
            f"{option('by', 'time')} needs a device, but {option('on')} gives only memory", option("on", "64xh100")
        )
    try:
        if device.calibration is not None:
            raise UsageError(f"{device.id} was calibrated with the reference model, which has no parallel layout")
        if recipe is not None:
            return training_times(model, work, device, count, recipe), ""
        return serving_times(model, work, device, dtype, kv_dtype), ""
    except TfacctError as error:
        if needed:
            raise
        return None, error.message.removeprefix(f"{model.name}: ")


# The order of layouts.

Order: TypeAlias = Literal["time", "memory", "sent"]
"""What orders layouts: estimated seconds, the bytes that a rank needs, or those that it sends."""
Key: TypeAlias = Callable[[Candidate], tuple[Any, ...]]


ORDERS: Mapping[Order, Key] = {
    "time": lambda one: (inf if one.estimate is None else one.estimate.seconds, one.sent, one.bytes),
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
    ranked = sorted((min(each, key=lambda one: key(one)[:-1]) for each in ways), key=key)
    if order == "time":  # seconds of two laws are not compared: the law of the fastest layout comes first
        first = {one.estimate.stack: one.estimate.seconds for one in reversed(ranked) if one.estimate is not None}
        ranked.sort(key=lambda one: inf if one.estimate is None else first[one.estimate.stack])
    return order, ranked, reason
