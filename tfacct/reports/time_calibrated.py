"""Time of the reference model on a machine that was swept: an estimate, beside what whole passes took there."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.calibrated import Calibration, Taken, taken
from tfacct.loading.devices import Device
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.budget import Budget
from tfacct.reports.placed import through, unlowered

DOUBT = (
    "The sweep's own checks are far off: the machine was busy, or its threads waited for others. Sweep it again when it"
    " is idle, or with one thread (OMP_NUM_THREADS=1)."
)
CONVENTION = "an estimate: seconds read off a sweep of this machine, for the reference model, line by line"


def priced(subject: LoadedModel, work: Workload, train: bool, on: Calibration) -> list[Taken]:
    """Seconds of the reference model's pass, by name. Raises ConfigError for a part that was not swept."""
    if (odd := unlowered(subject)) is not None or subject.ledger.instead is not None:
        raise ConfigError(
            f"{subject.name}: {odd or 'latent attention'} was not swept", "decoders of attention have a prediction"
        )
    parts = (sublayer.part for stack in subject.architecture.stacks for sublayer in stack.block.sublayers)
    activation = next((name for part in parts if (name := getattr(part, "activation", None)) is not None), "gelu")
    each = units.BITS[on.dtype] // 8
    try:
        return taken(subject.ledger, work, "train" if train else "forward", on, activation, each)
    except ConfigError as error:
        error.message = f"{subject.name}: {error.message}"
        raise


def time_calibrated(
    subject: LoadedModel, request: Request, memory: Budget, *, train: bool, dtype: str | None = None
) -> Report:
    """Seconds of a pass of the reference model on a swept machine. Raises TfacctError."""
    device = memory.device
    assert device is not None and device.calibration is not None
    on = device.calibration
    if memory.count != 1:
        raise UsageError(f"{device.id} was swept as one device, not as {memory.count:,}", option("on", device.id))
    if dtype is not None and units.dtype_name(dtype) != on.dtype:
        raise UsageError(f"{device.id} was swept in {on.dtype}, not in {dtype}", option("dtype", on.dtype))
    work = counting.runnable(subject, request)
    one = _Pass(subject, work, device, on, train, tuple(priced(subject, work, train, on)))
    one.check_room(memory)
    return compose.report(
        "time",
        [subject],
        one.table(),
        [one.facts()],
        title=f"{compose.name_of(subject)}: {one.what} on {device.name}, {on.dtype}, context {work.context:,},"
        f" batch {work.batch:,}",
        convention=CONVENTION,
        answer=one.answer(),
        notes=lambda _: one.notes(),
        requests=[request],
    )


@record
class _Pass:
    """A pass of the reference model in seconds, and everything said of it."""

    subject: LoadedModel
    work: Workload
    device: Device
    on: Calibration
    train: bool
    parts: tuple[Taken, ...]

    @property
    def what(self) -> str:
        """The pass in words."""
        if self.train:
            return "a forward and a backward pass"
        return "one decode step" if self.work.tokens == 1 < self.work.context else "a forward pass"

    @property
    def seconds(self) -> float:
        """Seconds of the pass."""
        return sum(one.seconds for one in self.parts)

    @property
    def ends(self) -> tuple[float, float]:
        """Seconds as the passes lay that the sweep was held against."""
        low, high = self.on.checks.ends
        return self.seconds * low, self.seconds * high

    @property
    def held(self) -> tuple[int, int]:
        """Bytes of weights and cache."""
        weights = sum(self.subject.ledger.parameters().values()) * units.BITS[self.on.dtype] // 8
        cache = sum(self.subject.ledger.state_bytes(self.work.axes(), width(self.on.dtype)).values())
        return int(weights), int(cache)

    @property
    def roofline(self) -> float:
        """Seconds at the fastest product and the bandwidth of a copy, whichever takes longer."""
        flops = sum(one.flops for one in self.parts)
        weights, cache = self.held
        moved = (weights + cache) * (3 if self.train else 1)
        return max(flops / self.device.peak[self.on.dtype], moved / self.device.bandwidth)

    @property
    def rate(self) -> float:
        """New tokens per second."""
        return float(self.work.batch * self.work.tokens / self.seconds)

    def check_room(self, memory: Budget) -> None:
        """Raises UsageError where weights and cache do not fit."""
        if sum(self.held) > memory.usable:
            raise UsageError(
                f"{self.subject.name}: {units.binary(sum(self.held))} of weights and cache do not fit into the usable"
                f" {memory.words}"
            )

    def table(self) -> Table:
        """Seconds by what they go to."""
        whole = self.seconds
        rows: list[Row] = [
            {
                "kernel": one.name,
                "times": one.times,
                "flops": one.flops or None,
                "seconds": Fraction(one.seconds),
                "share": Fraction(one.seconds / whole),
            }
            for one in self.parts
        ]
        totals: list[Row] = [
            {"kernel": "pass", "seconds": f"≈ {units.seconds(whole)}"},
            {"kernel": "by its checks", "seconds": through(self.ends), PLAIN: 1},
            {"kernel": "plain roofline", "seconds": f"≈ {units.seconds(self.roofline)}", PLAIN: 1},
        ]
        columns = (
            Column("kernel", "lines"),
            Column("times", "times", "count", drop=3),
            Column("flops", "FLOPs", "flops", drop=2),
            Column("seconds", "≈ time", "seconds"),
            Column("share", "share", "share", drop=4),
        )
        return columns, (tuple(rows),), tuple(totals)

    def answer(self) -> str:
        """The pass and its rate."""
        return f"≈ {units.seconds(self.seconds)} for {self.what}: ≈ {units.three(self.rate)} tokens/s."

    def notes(self) -> Sequence[str]:
        """What it was held against, and whose time it is."""
        on, count = self.on, len(self.on.checks.ratios)
        low, high = on.checks.ends
        threads = "one thread" if on.threads == 1 else f"{on.threads:,} threads"
        ran = " ".join(
            [
                "tfacct measure",
                self.subject.name,
                *(["--train"] if self.train else ["--decode"] if self.work.tokens == 1 < self.work.context else []),
            ]
        )
        return [
            *([DOUBT] if on.checks.doubtful else []),
            f"Estimate for the reference model, which runs unfused; an engine takes another time. {count:,} whole"
            f" passes of small models took × {low:.2f} … {high:.2f} of such an estimate when the machine was swept:"
            f" median error {units.percent(on.checks.error)}.",
            f"Swept on {on.read}: {on.machine}, {threads}, torch {on.torch}."
            f" {spelled(f'`{ran}` runs it.', 'measure() runs it.')}",
        ]

    def facts(self) -> dict[str, Any]:
        """The pass, as it stands in the JSON."""
        common = {
            "workload": counting.workload_facts(self.work, dtype=self.on.dtype),
            "estimate": True,
            "value_seconds": self.seconds,
            "interval_80_seconds": None,
            "validation": None,
            "assumptions": {},
            "calibration": self.calibration(),
        }
        if self.train:
            return {**common, **self._trained()}
        place = {"device": self.device.id, "count": 1, "tp": 1, "ep": 1, "link": None, **self.device.memory_facts()}
        return {
            **common,
            "on": {
                **place,
                "dtype": self.on.dtype,
                **counting.format_facts(self.subject, self.on.dtype),
                "kv_dtype": self.on.dtype,
            },
            "bound_seconds": self.roofline,
            "tokens_per_second": self.rate,
            "engine_seconds": 0.0,
            "kernels": [
                {
                    "kernel": one.name,
                    "times": one.times,
                    "flops": one.flops,
                    "bytes": None,
                    "limit": None,
                    "seconds": one.seconds,
                }
                for one in self.parts
            ],
        }

    def _trained(self) -> dict[str, Any]:
        flops = sum(one.flops for one in self.parts)
        return {
            "train": True,
            "device": self.device.id,
            "devices": 1,
            "accumulate": 1,
            "recompute": "none",
            "tp": 1,
            "sp": False,
            "pp": 1,
            "pp_chunks": 1,
            "link": None,
            "link_tp": None,
            "fits": None,
            "least_bytes": sum(self.held),
            "needed_bytes": None,
            "usable_bytes": self.device.memory,
            "constant_utilization_seconds": None,
            "parts_seconds": {one.name: one.seconds for one in self.parts},
            "tokens_per_second_each": self.rate,
            "mfu": flops / self.seconds / self.device.peak[self.on.dtype],
            "mfu_palm": None,
            "days": None,
        }

    def calibration(self) -> dict[str, Any]:
        """The sweep: machine, error and the ends of its checks."""
        low, high = self.on.checks.ends
        return {
            "machine": self.on.machine,
            "dtype": self.on.dtype,
            "threads": self.on.threads,
            "torch": self.on.torch,
            "clock": self.on.clock,
            "read": self.on.read,
            "checks": dict(self.on.checks.ratios),
            "median_error": self.on.checks.error,
            "low": low,
            "high": high,
        }
