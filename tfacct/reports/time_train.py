"""Time of a training step, under FSDP or divided by tensor and pipeline parallelism: an estimate, beside that of a
constant utilization."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tfacct.accounts.metrics import Point
from tfacct.accounts.step_flops import backward_flops, forward_flops, recomputed_flops
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import devices
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.budget import of_device
from tfacct.reports.placed import MEASURED, constants_of, facts_of_errors, through
from tfacct.reports.step_time import (
    Memory,
    Trains,
    error_said,
    estimated,
    fitting_options,
    measured_alike,
    measured_link,
    memory,
    validation,
)
from tfacct.timing import divided_time
from tfacct.timing.divided_time import DIVIDED, DividedParts
from tfacct.timing.training_time import TRAINING, UTILIZATION, Parts, Trained
from tfacct.timing.utilization import flops_per_token, utilization
from tfacct.timing.validated import NEWER_HIGH, NEWER_LOW, STORED, Validation

DAY = 86_400
IDLE = 0.25
"""Share of a step that stages wait, from which on it is said how they wait less."""
NAMES = {
    "products": "products of blocks",
    "head": "head",
    "attention": "attention",
    "pointwise": "pointwise",
    "logits": "logits and loss",
    "launches": "launches",
    "gathers": "gathers, scatters",
    "sums": "sums over tp",
    "waiting": "waiting of stages",
    "gradients": "sums of gradients",
    "optimizer": "optimizer",
    "rest": "rest",
}
LEAST = (
    "At least: in bf16, weights, AdamW's state, and the larger of gradients and the activations that matmuls read.",
    "At least: in bf16, weights, gradients, AdamW's state and the activations that matmuls read.",
)
"""What the least memory includes: of one micro-batch, and of several, whose gradients stay in memory."""
CONVENTION = "an estimate: seconds by a fitted law over FLOPs, bytes and launches, under FSDP"
DIVIDED_CONVENTION = "an estimate: seconds by a fitted law over FLOPs, bytes and launches, as Megatron divides a step"


def time_train(
    subject: LoadedModel,
    request: Request,
    on: str,
    how: Trains,
    *,
    dtype: str | None = None,
    use: float | None = None,
    reserve: int | str | None = None,
) -> Report:
    """Seconds of a training step on devices that share it. Raises TfacctError."""
    count, device = devices.several(option("on"), on)
    usable = of_device(count, device, use, reserve, training=True)
    if device.calibration is not None:
        from tfacct.reports.time_calibrated import time_calibrated

        if how != Trains():
            raise UsageError(f"{device.id} was swept for a plain step: one micro-batch, no recomputation, no days")
        return time_calibrated(subject, request, usable, train=True, dtype=dtype)
    name = units.dtype_name(dtype or counting.DEFAULT_DTYPE)
    work = counting.runnable(subject, request)
    trained, parts = estimated(subject, work, count, device, name, how)
    room = memory(subject, work, count, usable.usable, how, fp8=trained.fp8)
    one = _Step(subject, work, device, trained, name, parts, how, room)
    where = device.name if count == 1 else f"{count:,} × {device.name}"
    return compose.report(
        "time",
        [subject],
        one.table(),
        [one.facts()],
        title=f"{compose.name_of(subject)}: one training step on {where}, {name}, {one.words}",
        convention=CONVENTION if how.mesh.ranks == 1 else DIVIDED_CONVENTION,
        answer=one.answer(),
        notes=lambda _: one.notes(),
        requests=[request],
    )


@record
class _Step:
    """A training step in seconds and everything reported of it; no seconds if it does not fit in memory."""

    subject: LoadedModel
    work: Workload
    device: devices.Device
    trained: Trained
    dtype: str
    parts: Parts | DividedParts
    how: Trains
    memory: Memory

    @property
    def words(self) -> str:
        """The step in words."""
        parts = self.trained.accumulate
        accumulated = f", {parts:,} micro-batches" if parts > 1 else ", 1 micro-batch" if self.divided else ""
        again = {"blocks": ", blocks recomputed", "attention": ", attention recomputed", "": ""}[self.how.again]
        each = "on each device" if not self.divided else f"on every {self.how.mesh.ranks:,} devices"
        return f"context {self.work.context:,}, batch {self.work.batch:,} {each}{accumulated}{again}"

    @property
    def divided(self) -> bool:
        """True if tensor or pipeline parallelism divides it."""
        return self.how.mesh.ranks > 1

    @property
    def error(self) -> Validation:
        """Errors of steps that were divided alike."""
        return validation(self.divided)

    @property
    def link(self) -> Link | None:
        """The link of all devices, over which they gather weights and sum gradients; None of one device."""
        return None if self.trained.devices == 1 else self.device.link(self.trained.devices)

    @property
    def link_tp(self) -> Link | None:
        """The link of the devices that share widths; None of one."""
        return None if self.how.mesh.tp == 1 else self.device.link(self.how.mesh.tp)

    @property
    def tokens_total(self) -> int | None:
        """Tokens of the whole training."""
        return self.how.tokens_total

    @property
    def rate(self) -> float:
        """Tokens per second of one device."""
        return self.trained.tokens / self.how.mesh.ranks / self.parts.seconds

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds between which 80 % of such steps lie; None where nothing alike was measured."""
        if self.device.vendor != MEASURED or (self.divided and self.device.id not in self.error.on):
            return None
        if not measured_link(self.link):
            return None
        if not measured_alike(self.subject, self.divided):
            return self.parts.seconds * NEWER_LOW, self.parts.seconds * NEWER_HIGH
        return self.parts.seconds * self.error.low, self.parts.seconds * self.error.high

    def mfu(self, convention: Any) -> float | None:
        """Utilization of the bf16 peak; None by a formula that the model has not."""
        point = Point(self.subject.ledger, self.work, train=True)
        try:
            each = flops_per_token(point, convention)
        except TfacctError:
            return None
        return utilization(float(each), self.rate, self.device.peak["bf16"])

    @property
    def usual(self) -> float:
        """Seconds of the step at the utilization that measured runs had in the middle: of a divided one with what runs
        again."""
        mfu = self.mfu("full")
        assert mfu is not None
        if not self.divided:
            return self.parts.seconds * mfu / UTILIZATION
        ledger, at, again = self.subject.ledger, self.work.axes(), self.how.again
        once = forward_flops(ledger, at) + backward_flops(ledger, at)
        more = recomputed_flops(ledger, at, attention=again == "attention") if again else 0
        return self.parts.seconds * mfu * float(Fraction(once + more, once)) / divided_time.UTILIZATION

    @property
    def days(self) -> float | None:
        """Days for all tokens."""
        if self.tokens_total is None:
            return None
        return self.tokens_total / (self.rate * self.trained.devices) / DAY

    def table(self) -> Table:
        """Seconds by what they go to, or the memory that is missing."""
        if self.memory.fits is False:
            return self._missing_memory()
        whole = self.parts.seconds
        rows: list[Row] = [
            {"what": NAMES[name], "seconds": Fraction(seconds), "share": Fraction(seconds / whole)}
            for name, seconds in self.parts._asdict().items()
            if seconds
        ]
        totals: list[Row] = [{"what": "step", "seconds": f"≈ {units.seconds(whole)}"}]
        if self.interval is not None:
            totals.append({"what": "80% interval", "seconds": through(self.interval), PLAIN: 1})
        share = divided_time.UTILIZATION if self.divided else UTILIZATION
        usual = f"at {units.percent(share)} of the peak"
        totals.append({"what": usual, "seconds": f"≈ {units.seconds(self.usual)}", PLAIN: 1})
        columns = (
            Column("what", "what"),
            Column("seconds", "≈ time", "seconds"),
            Column("share", "share", "share"),
        )
        return columns, (tuple(rows),), tuple(totals)

    def _missing_memory(self) -> Table:
        room = self.memory
        rows: list[Row] = [{"what": "needed at least", "bytes": room.least}]
        if room.counted is not None:
            rows.append({"what": "needed as transformers runs it", "bytes": room.counted})
        rows.append({"what": f"usable of {self.device.name}", "bytes": room.usable})
        return (Column("what", "on each device"), Column("bytes", "bytes", "bytes")), (tuple(rows),), ()

    def _does_not_fit(self) -> str:
        """The answer about a step that cannot run, with the options of one that can."""
        room = self.memory
        needs = f"at least {units.binary(room.least)} of {units.binary(room.usable)}"
        changed = fitting_options(self.subject, self.work, self.trained.devices, self.device, self.how, room.usable)
        advice = "" if not changed else f"; try {' '.join(option(name, value) for name, value in changed.items())}"
        return f"Does not fit: needs {needs} on each device{advice}."

    def _room(self) -> str:
        """Whether a step that may fit does."""
        counted, usable = self.memory.counted, units.binary(self.memory.usable)
        if counted is None:
            return f"Whether the step fits is not known: {self.memory.reason}."
        if counted <= self.memory.usable:
            return f"Fits: needs {units.binary(counted)} of {usable} as transformers runs it, all in bf16 with AdamW."
        least = units.binary(self.memory.least)
        return (
            f"The least that kernels could need is {least}: {LEAST[self.how.accumulate > 1].removeprefix('At least: ')}"
        )

    def answer(self) -> str:
        """The step, its rate, its utilization; whether it fits comes first."""
        if self.memory.fits is False:
            return self._does_not_fit()
        mfu = units.percent(self.mfu("full") or 0)
        rate = units.three(self.rate)
        days = (
            ""
            if self.days is None
            else f", ≈ {units.three(self.days)} days for {units.people(self.tokens_total or 0)} tokens"
        )
        seconds = f"≈ {units.seconds(self.parts.seconds)}: ≈ {rate} tokens/s on each device, {mfu} of its peak{days}."
        room = self.memory
        if room.fits is None and room.counted is not None:
            counted = f"{units.binary(room.counted)} of {units.binary(room.usable)}"
            return (
                f"Does not fit as transformers runs it, which needs {counted}. With kernels that save less: {seconds}"
            )
        return seconds

    def notes(self) -> list[str]:
        """What it was measured against, and what is not included."""
        if self.memory.fits is False:
            return [LEAST[self.how.accumulate > 1]]
        steps = "the same steps" if self.device.vendor == MEASURED else f"steps measured on devices of {MEASURED}"
        palm = self.mfu("palm")
        both = "" if palm is None else f"; {units.percent(palm)} by PaLM's formula"
        erred = (
            f"A constant {units.percent(divided_time.UTILIZATION)} of the peak, what runs again counted, erred 8.7%"
            if self.divided
            else f"A constant utilization of {units.percent(UTILIZATION)} erred 13.1%"
        )
        return [
            self._room(),
            error_said(self.subject, self.device, self.divided, self.link),
            f"{erred} on {steps}: a strong baseline.",
            f"Utilization (MFU) counts all pairs, and no recomputation{both}.",
            self._shared(),
            *self._links(),
            *self._idle(),
        ]

    def _links(self) -> list[str]:
        """Which links the devices use."""
        return list(dict.fromkeys(link.words for link in (self.link_tp, self.link) if link is not None))

    def _idle(self) -> list[str]:
        """How stages would wait less, where they wait most of the time."""
        waiting = self.parts._asdict().get("waiting", 0.0) / self.parts.seconds
        if waiting < IDLE:
            return []
        more = option("accumulate")
        return [
            f"Stages wait for {units.percent(waiting)} of the step: they wait less with more micro-batches ({more})."
        ]

    def _shared(self) -> str:
        """Who has what."""
        if not self.divided:
            return "Devices share by FSDP only."
        mesh, copies = self.how.mesh, self.trained.devices // self.how.mesh.ranks
        made = []
        if mesh.tp > 1:
            made.append(f"{mesh.tp:,} devices share widths{' and tokens' if mesh.sp else ''}")
        if mesh.pp > 1:
            made.append(f"{mesh.pp:,} stages share blocks")
        if copies > 1:
            made.append(f"{copies:,} copies take a batch each")
        return f"{', '.join(made)}; attention is unfused."

    def facts(self) -> dict[str, Any]:
        """The step, as it stands in the JSON."""
        fits = self.memory.fits is not False
        error, ends, measured = self.error, self.interval if fits else None, None
        if ends is not None and measured_alike(self.subject, self.divided):
            measured = facts_of_errors(error, self.device.id, STORED[error.kind][self.dtype])
        return {
            "workload": counting.workload_facts(self.work, dtype=self.dtype),
            "train": True,
            "device": self.device.id,
            "devices": self.trained.devices,
            "accumulate": self.trained.accumulate,
            "recompute": {"blocks": "full", "attention": "attention", "": "none"}[self.how.again],
            "tp": self.how.mesh.tp,
            "sp": self.how.mesh.sp,
            "pp": self.how.mesh.pp,
            "pp_chunks": self.how.mesh.chunks,
            "link": None if self.link is None else self.link.facts(),
            "link_tp": None if self.link_tp is None else self.link_tp.facts(),
            "estimate": True,
            "fits": self.memory.fits,
            "least_bytes": self.memory.least,
            "needed_bytes": self.memory.counted,
            "usable_bytes": self.memory.usable,
            "value_seconds": self.parts.seconds if fits else None,
            "interval_80_seconds": None if ends is None else list(ends),
            "constant_utilization_seconds": self.usual if fits else None,
            "parts_seconds": self.parts._asdict() if fits else None,
            "tokens_per_second_each": self.rate if fits else None,
            "mfu": self.mfu("full") if fits else None,
            "mfu_palm": self.mfu("palm") if fits else None,
            "days": self.days if fits else None,
            "validation": measured,
            "assumptions": constants_of(TRAINING) | (constants_of(DIVIDED) if self.divided else {}),
            "calibration": None,
        }
