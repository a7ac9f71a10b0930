"""Time of the steps of parallel layouts, and their order: estimates, for layouts like those that were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Literal, TypeAlias

from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option, typed_options
from tfacct.ledger.workload import Workload
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.timing import step_estimate
from tfacct.timing.placement import Deployment, Placement
from tfacct.training.layout_search import Candidate, Estimate, SearchResult
from tfacct.training.recipe import Recipe


class Times:
    """Estimates for the layouts of devices: a training step by a `recipe`, or else one new token of each sequence, of a
    model that serves in the formats of `how`. Raises TfacctError if no layout has an estimate. `reason`: why the last
    layout without one has none. `placed`: a model that serves, by tensor-parallel size.
    """

    def __init__(
        self, model: LoadedModel, work: Workload, fit: MemoryLimit, count: int, recipe: Recipe | None, how: Deployment
    ) -> None:
        if (device := fit.device) is None:
            on = f"{option('by', 'time')} needs a device, but {option('on')} gives only memory"
            raise UsageError(on, option("on", "64xh100"))
        self.model, self.work, self.device, self.recipe, self.how = model, work, device, recipe, how
        self.reason, self.placed = "", dict[int, Placement]()
        if device.calibration is not None:
            raise UsageError(f"{device.id} was calibrated with the reference model, which has no parallel layout")
        if recipe is None:
            self.placed[1] = how.place(model, 1, device)
            return
        try:
            fsdp = step_estimate.timed_as(work, replace(recipe, mesh=Mesh(fsdp=count)), recipe.dtype)
        except UsageError as error:
            raise UsageError(error.message, f"leave {option('by', 'time')} out") from None
        step_estimate.check(model, device, fsdp)

    def timed(self, one: Candidate) -> Candidate:
        """The same with its estimate, if it has one."""
        try:
            return one._replace(estimate=self._token(one) if self.recipe is None else self._step(one, self.recipe))
        except TfacctError as error:
            self.reason = error.message.removeprefix(f"{self.model.name}: ")
            return one

    def _step(self, one: Candidate, recipe: Recipe) -> Estimate:
        """A training step: under FSDP, or under tensor and pipeline parallelism as Megatron-LM runs them, each of which
        has a law of its own."""
        mesh = one.mesh
        if mesh.sequence_shards > 1 or 1 < mesh.fsdp < mesh.ranks:
            raise UsageError("too few steps under such a layout were measured to compare it")
        how = replace(recipe, mesh=mesh, recompute=one.recompute, gradient_accumulation=one.times)
        trained = step_estimate.timed_as(replace(self.work, batch=one.batch), how, recipe.dtype)
        seconds = step_estimate.estimated(self.model, self.device, trained).seconds
        links = tuple(self.device.link(count) for count in sorted({mesh.tp, mesh.ranks}) if count > 1)
        return Estimate(seconds, "", "Megatron-LM" if trained.megatron else "FSDP", links)

    def _token(self, one: Candidate) -> Estimate:
        """One new token of each sequence, under tensor parallelism."""
        tp, device, how = one.mesh.tp, self.device, self.how
        if one.mesh.pp > 1:
            raise UsageError("no pipeline stages that serve were measured")
        if one.mesh.ep > 1:
            raise UsageError(f"expert parallelism is estimated by `tfacct time` with {option('ep')}, on all devices")
        if tp not in self.placed:
            self.placed[tp] = how.place(self.model, tp, device)
        asked = {"on": device.id if tp == 1 else f"{tp}x{device.id}", "ctx": self.work.context, "batch": one.batch}
        command = typed_options({**asked, "dtype": how.dtype, "kv_dtype": how.kv_dtype}.items()).strip()
        step = self.placed[tp].host.step(replace(self.work, batch=one.batch, tokens=1, logits="last"))
        return Estimate(step.seconds, command, links=() if tp == 1 else (device.link(tp),))


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


def by_law(found: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Layouts by the law of their estimate, "" without one, in their order."""
    laws: dict[str, list[Candidate]] = {}
    for one in found:
        laws.setdefault("" if one.estimate is None else one.estimate.stack, []).append(one)
    return laws


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
