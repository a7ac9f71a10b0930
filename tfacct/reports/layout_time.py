"""How long divisions of devices take: estimates, of those that one was measured for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.devices import Device
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.reports import estimates
from tfacct.reports.layout_search import Candidate
from tfacct.timing import step_estimate
from tfacct.timing.megatron_time import MegatronLayout
from tfacct.timing.placement import place
from tfacct.timing.step_estimate import StepOptions
from tfacct.training.recipe import Recipe

FSDP, MEGATRON = "FSDP", "Megatron-LM"


class Times(ABC):
    """Estimates of what divisions of `count` devices take. `why`: why the last one without an estimate has none."""

    unit: str
    """What the seconds are of."""

    def __init__(self, model: LoadedModel, work: Workload, device: Device, count: int) -> None:
        self.model, self.work, self.count, self.device = model, work, count, device
        self.reason = ""
        if self.device.calibration is not None:
            raise UsageError(f"{self.device.id} was swept with the reference model: no division of it has an estimate")

    def timed(self, one: Candidate) -> Candidate:
        """The same with its seconds, and the words that ask for them; None where there is no estimate."""
        try:
            seconds, words = self.estimate(one)
        except TfacctError as error:
            self.reason = error.message
            return one
        return one._replace(seconds=seconds, time_options=words, stack=self.stack(one), links=self.links(one))

    @abstractmethod
    def estimate(self, one: Candidate) -> tuple[float, str]:
        """Seconds, and the options of `tfacct time`. Raises TfacctError for a division that has no estimate."""

    def stack(self, _one: Candidate) -> str:
        """The stack whose measured steps an estimate rests on: seconds of two stacks are not compared."""
        return ""

    def links(self, one: Candidate) -> tuple[Link, ...]:
        """The links that its seconds assume: of the devices that share widths, and of all that share a step."""
        return tuple(self.device.link(count) for count in dict.fromkeys(self.linked(one)) if count > 1)

    def links_said(self, shown: list[Candidate]) -> list[str]:
        """The links of the fastest, in sentences."""
        return [link.words for link in next(one for one in shown if one.seconds is not None).links]

    @abstractmethod
    def linked(self, one: Candidate) -> tuple[int, ...]:
        """Numbers of devices that send to each other."""

    @abstractmethod
    def said(self, shown: list[Candidate]) -> list[str]:
        """What the estimates were measured against."""


class TrainingTimes(Times):
    """Training steps: under FSDP, or divided by tensor and pipeline parallelism as Megatron divides them."""

    unit = "a step"

    def __init__(self, model: LoadedModel, work: Workload, device: Device, count: int, recipe: Recipe) -> None:
        super().__init__(model, work, device, count)
        self.recipe = recipe
        unlike = {
            option("lora"): recipe.lora is not None,
            option("recompute", recipe.recompute): bool(recipe.recomputed_modules),
            option("loss", "chunked"): recipe.loss == "chunked",
            option("attention", "eager"): recipe.attention == "eager",
        }
        for name in (name for name, given in unlike.items() if given):
            raise UsageError(f"no training step with {name} was measured", f"leave {option('by', 'time')} out")
        step_estimate.check(model, count, self.device, recipe.dtype, StepOptions())

    def estimate(self, one: Candidate) -> tuple[float, str]:
        mesh, again = one.mesh, self.recipe.recompute == "full"
        if mesh.ep > 1:
            raise UsageError("no training step with whole experts was measured")
        if mesh.fsdp == mesh.ranks:
            batch, how = one.batch, StepOptions(one.times, again)
        else:
            if (odd := _unlike(mesh)) is not None:
                raise UsageError(f"no training step with {odd} was measured")
            staged = mesh.pp > 1  # stages take one sequence at a time
            batch, times = (1, one.batch) if staged else (one.batch, one.times)
            how = StepOptions(times, again, mesh=MegatronLayout(mesh.tp, mesh.sp, mesh.pp))
        work, name = replace(self.work, batch=batch), self.recipe.dtype
        _, parts = step_estimate.estimated(self.model, work, self.count, self.device, name, how)
        words = [f"--train --on {self.count}x{self.device.id} --ctx {work.context} --batch {batch}"]
        words += [f"--accumulate {how.accumulate}"] if how.accumulate > 1 else []
        words += ["--recompute"] if again else []
        words += [f"--{axis} {size}" for axis, size in (("tp", how.mesh.tp), ("pp", how.mesh.pp)) if size > 1]
        words += ["--sp"] if how.mesh.sp else []
        return parts.seconds, " ".join(words)

    def said(self, shown: list[Candidate]) -> list[str]:
        stacks = {one.stack for one in shown if one.seconds is not None}
        link = None if self.count == 1 else self.device.link(self.count)
        said = [estimates.step_error_note(self.model, self.device, stack == MEGATRON, link) for stack in sorted(stacks)]
        both = [
            "Layouts of two stacks are not ranked against each other: measured FSDP steps fused attention, measured"
            " Megatron-LM steps did not."
        ]
        return said + (both if len(stacks) > 1 else [])

    def linked(self, one: Candidate) -> tuple[int, ...]:
        return one.mesh.tp, self.count

    def stack(self, one: Candidate) -> str:
        return FSDP if one.mesh.fsdp == one.mesh.ranks else MEGATRON


def _unlike(mesh: Mesh) -> str | None:
    """What of a division no measured step had, in words; None if it is Megatron's."""
    if mesh.sequence_shards > 1:
        return "parts of sequences"
    if mesh.fsdp > 1:
        return f"{option('fsdp')} beside other axes"
    if mesh.zero > 1:
        return option("zero", mesh.zero)
    return "copies alone" if mesh.tp * mesh.pp == 1 else None


class ServingTimes(Times):
    """One new token of each sequence, on devices that divide heads and widths."""

    unit = "a token"

    def __init__(
        self, model: LoadedModel, work: Workload, device: Device, count: int, dtype: str | None, kv_dtype: str | None
    ) -> None:
        super().__init__(model, work, device, count)
        self.dtype, self.kv_dtype = dtype, kv_dtype
        self.hosts = {1: place(model, 1, self.device, dtype=dtype, kv_dtype=kv_dtype)}

    def estimate(self, one: Candidate) -> tuple[float, str]:
        tp = one.mesh.tp
        if one.mesh.pp > 1:
            raise UsageError("no stages that serve were measured")
        if one.mesh.ep > 1:
            raise UsageError(f"whole experts are timed by `tfacct time` with {option('ep')}, among all devices")
        if tp not in self.hosts:
            self.hosts[tp] = place(self.model, tp, self.device, dtype=self.dtype, kv_dtype=self.kv_dtype)
        work = replace(self.work, batch=one.batch, tokens=1, logits="last")
        on = self.device.id if tp == 1 else f"{tp}x{self.device.id}"
        words = [f"--on {on} --ctx {work.context} --batch {one.batch}"]
        given = {"dtype": self.dtype, "kv-dtype": self.kv_dtype}
        words += [f"--{name} {value}" for name, value in given.items() if value is not None]
        return self.hosts[tp].host.step(work).seconds, " ".join(words)

    def said(self, shown: list[Candidate]) -> list[str]:
        timed = next(one for one in shown if one.seconds is not None)
        return [estimates.error_note(self.hosts[timed.mesh.tp], timed.batch)]

    def linked(self, one: Candidate) -> tuple[int, ...]:
        return (one.mesh.tp,)


def times_of(
    model: LoadedModel,
    work: Workload,
    device: Device | None,
    count: int,
    recipe: Recipe | None,
    dtype: str | None,
    kv_dtype: str | None,
) -> Times:
    """What times the divisions of a training step, or of serving. Raises TfacctError."""
    if device is None:
        raise UsageError(
            f"{option('by', 'time')} needs a device: {option('fit')} names only bytes", option("fit", "h100-sxm")
        )
    if recipe is not None:
        return TrainingTimes(model, work, device, count, recipe)
    return ServingTimes(model, work, device, count, dtype, kv_dtype)
