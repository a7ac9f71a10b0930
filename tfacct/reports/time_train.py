"""Time of a training step under FSDP: an estimate, beside that of a constant utilization."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tfacct.accounts import training_time
from tfacct.accounts.metrics import Point
from tfacct.accounts.training_time import TRAINING, UTILIZATION, Parts, Trained
from tfacct.accounts.utilization import flops_per_token, utilization
from tfacct.accounts.validated import STORED, VALIDATED
from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.workload import Request, Workload, check_size
from tfacct.loading import devices
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.placed import MEASURED, constants_of, through

DAY = 86_400
DTYPES = ("bf16", "fp8")
NAMES = {
    "products": "products of blocks",
    "head": "head",
    "attention": "attention",
    "pointwise": "pointwise",
    "logits": "logits and loss",
    "launches": "launches",
    "gathers": "gathers, scatters",
    "optimizer": "optimizer",
    "rest": "rest",
}
CONVENTION = "an estimate: seconds by a fitted law over FLOPs, bytes and launches, under FSDP"


@record
class Trains:
    """How a model is trained, as a user words it: micro-batches before an update, recomputed blocks, tokens in all."""

    accumulate: int = 1
    recompute: bool = False
    tokens_total: int | None = None


def time_train(subject: LoadedModel, request: Request, on: str, how: Trains, *, dtype: str | None = None) -> Report:
    """Seconds of a training step on devices that share it by FSDP. Raises TfacctError."""
    count, device = devices.several(option("on"), on)
    if device.calibration is not None:
        from tfacct.reports.time_calibrated import time_calibrated

        if how != Trains():
            raise UsageError(f"{device.id} was swept for a plain step: one micro-batch, no recomputation, no days")
        return time_calibrated(subject, request, device, count, train=True, dtype=dtype)
    name = units.dtype_name(dtype or counting.DEFAULT_DTYPE)
    _check(subject, count, device, name, how)
    work = counting.workload(subject, request)
    trained = Trained(work.context, work.batch, count, how.accumulate, how.recompute, name == "fp8")
    try:
        parts = training_time.step(training_time.work_of(subject.ledger, trained), device, trained)
    except ConfigError as error:
        error.message = f"{subject.name}: {error.message}"
        raise
    one = _Step(subject, work, device, trained, name, parts, how.tokens_total)
    where = device.name if count == 1 else f"{count:,} × {device.name}"
    return compose.report(
        "time",
        [subject],
        one.table(),
        [one.facts()],
        title=f"{compose.name_of(subject)}: one training step on {where}, {name}, {one.words}",
        convention=CONVENTION,
        answer=one.answer(),
        notes=lambda _: one.notes(),
        requests=[request],
    )


def _check(subject: LoadedModel, count: int, device: devices.Device, name: str, how: Trains) -> None:
    """Raises TfacctError for what was not measured in any way."""
    check_size(option("accumulate"), how.accumulate)
    if how.tokens_total is not None:
        check_size(option("tokens_total"), how.tokens_total)
    if name not in DTYPES:
        raise UsageError(f"a training step is estimated in {' or '.join(DTYPES)}, not in {name}")
    if name not in device.peak:
        said = f"{device.id} has no {name} units"
        raise UsageError(
            said, f"ask in {option('dtype', 'bf16')}" if "bf16" in device.peak else "ask for another device"
        )
    if "bf16" not in device.peak:
        raise UsageError(f"{device.id} has no bf16 units", "ask for another device")
    if count > 1 and device.link is None:
        raise UsageError(f"no link between devices is known for {device.id}", "ask for one device")
    if subject.ledger.experts:
        raise ConfigError(
            f"{subject.name}: no training step with experts was measured", "dense decoders have an estimate"
        )
    if subject.architecture.encoder is not None or subject.architecture.mtp is not None or not subject.keeps:
        raise ConfigError(f"{subject.name}: no estimate of its training step", "dense decoders have one")


@record
class _Step:
    """A training step in seconds, and everything said of it."""

    subject: LoadedModel
    work: Workload
    device: devices.Device
    trained: Trained
    dtype: str
    parts: Parts
    tokens_total: int | None

    @property
    def words(self) -> str:
        """The step in words."""
        accumulated = f", {self.trained.accumulate:,} of it" if self.trained.accumulate > 1 else ""
        again = ", blocks recomputed" if self.trained.recompute else ""
        return f"context {self.work.context:,}, batch {self.work.batch:,} on each{accumulated}{again}"

    @property
    def rate(self) -> float:
        """Tokens per second of one device."""
        return self.trained.tokens / self.parts.seconds

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds between which 80 % of such steps lie; None where no error is known."""
        if self.device.vendor != MEASURED:
            return None
        error = VALIDATED["training", "step"]
        return self.parts.seconds * error.low, self.parts.seconds * error.high

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
        """Seconds of the step at the utilization that measured runs had in the middle."""
        mfu = self.mfu("full")
        assert mfu is not None
        return self.parts.seconds * mfu / UTILIZATION

    @property
    def days(self) -> float | None:
        """Days for all tokens."""
        if self.tokens_total is None:
            return None
        return self.tokens_total / (self.rate * self.trained.devices) / DAY

    def table(self) -> Table:
        """Seconds by what they go to."""
        whole = self.parts.seconds
        rows: list[Row] = [
            {"what": NAMES[name], "seconds": Fraction(seconds), "share": Fraction(seconds / whole)}
            for name, seconds in self.parts._asdict().items()
            if seconds
        ]
        totals: list[Row] = [{"what": "step", "seconds": f"≈ {units.seconds(whole)}"}]
        if self.interval is not None:
            totals.append({"what": "80% interval", "seconds": through(self.interval), PLAIN: 1})
        usual = f"at {units.percent(UTILIZATION)} of the peak"
        totals.append({"what": usual, "seconds": f"≈ {units.seconds(self.usual)}", PLAIN: 1})
        columns = (
            Column("what", "what"),
            Column("seconds", "≈ time", "seconds"),
            Column("share", "share", "share"),
        )
        return columns, (tuple(rows),), tuple(totals)

    def answer(self) -> str:
        """The step, its rate, its utilization."""
        mfu = units.percent(self.mfu("full") or 0)
        rate = units.three(self.rate)
        days = (
            ""
            if self.days is None
            else f", ≈ {units.three(self.days)} days for {units.people(self.tokens_total or 0)} tokens"
        )
        return f"≈ {units.seconds(self.parts.seconds)}: ≈ {rate} tokens/s on each device, {mfu} of its peak{days}."

    def notes(self) -> list[str]:
        """What it was measured against, and what it leaves out."""
        error = VALIDATED["training", "step"]
        if self.device.vendor == MEASURED:
            here = error.on.get(self.device.id, 0)
            where = f"{here:,} of them" if here else "none of them"
            said = (
                "Estimate. Dense decoders (MPT) under FSDP, runs never fitted: median error"
                f" {units.percent(error.median)} on {error.runs:,} measured steps, {where} on this device."
            )
        else:
            maker = self.device.vendor or "this maker"
            said = f"Estimate. No step on devices of {maker} was measured, so its error is not known."
        steps = "the same steps" if self.device.vendor == MEASURED else f"steps measured on devices of {MEASURED}"
        fits = f"{spelled('`tfacct train`', '`train`')} counts whether a step fits."
        if not self.subject.config.trains:
            fits = f"Whether a step of {self.subject.family} fits is not counted: what it keeps was not measured."
        palm = self.mfu("palm")
        both = "" if palm is None else f"; {units.percent(palm)} by PaLM's formula"
        return [
            said,
            f"A constant utilization of {units.percent(UTILIZATION)} erred 13.1% on {steps}: a strong baseline.",
            f"Utilization (MFU) counts all pairs, and no recomputation{both}.",
            f"Devices share by FSDP alone. {fits}",
        ]

    def facts(self) -> dict[str, Any]:
        """The step, as it stands in the JSON."""
        error, ends = VALIDATED["training", "step"], self.interval
        validation = None
        if ends is not None:
            validation = {
                "class": error.kind,
                "metric": error.metric,
                "points": error.runs,
                "cells": error.cells,
                "points_on_device": error.on.get(self.device.id, 0),
                "points_in_dtype": STORED["training"][self.dtype],
                "median_error": error.median,
                "coverage": error.coverage,
            }
        return {
            "workload": counting.workload_facts(self.work, dtype=self.dtype),
            "train": True,
            "device": self.device.id,
            "devices": self.trained.devices,
            "accumulate": self.trained.accumulate,
            "recompute": self.trained.recompute,
            "estimate": True,
            "value_seconds": self.parts.seconds,
            "interval_80_seconds": None if ends is None else list(ends),
            "constant_utilization_seconds": self.usual,
            "parts_seconds": self.parts._asdict(),
            "tokens_per_second_each": self.rate,
            "mfu": self.mfu("full"),
            "mfu_palm": self.mfu("palm"),
            "days": self.days,
            "validation": validation,
            "assumptions": constants_of(TRAINING),
            "calibration": None,
        }
