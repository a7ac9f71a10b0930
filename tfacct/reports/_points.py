"""What the reports that ask metrics by name share: how things are counted, and a metric's value in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tfacct import units
from tfacct.errors import UsageError
from tfacct.metrics import Metric, Point
from tfacct.report import Amount
from tfacct.reports import _common as common
from tfacct.reports import _kinds as kinds
from tfacct.subject import Subject
from tfacct.workload import Logits, Workload


@dataclass(frozen=True, slots=True)
class Terms:
    """In which dtypes, with which query–key pairs, and of which pass a metric is taken."""

    dtype: str | None = None
    kv_dtype: str | None = None
    masked: bool = False
    train: bool = False

    def point(self, subject: Subject, work: Workload, metrics: Sequence[Metric] = ()) -> Point:
        """The model at a workload. Raises UsageError where one of the metrics would be a guess."""
        if self.train and work.tokens != work.context:
            raise UsageError("--train counts whole sequences: it goes with neither --decode nor --tokens")
        if any(metric.unit == "bytes" or metric.name in MOVED for metric in metrics):
            common.check_stored([subject], self.dtype)
        if (self.masked or self.train) and any(metric.name in MOVED for metric in metrics):
            raise UsageError("what moves is counted of a plain forward pass: leave --masked and --train out")
        stored, cached = common.dtypes(self.dtype, self.kv_dtype)
        bits, cache_bits = units.dtype_bits(stored), units.dtype_bits(cached)
        return Point(subject.ledger, work, bits, cache_bits, self.masked, self.train)

    def words(self, subjects: Sequence[Subject], metrics: Sequence[Metric], logits: Logits = "all") -> list[str]:
        """What was counted of these models, for the notes: only what the metrics depend on."""
        said = []
        if any(metric.unit in ("flops", "share", "ratio") for metric in metrics):
            attention = kinds.attention_words(subjects, self.masked)
            step = "forward and backward" if self.train else "one forward pass"
            where = "logits for every position" if logits == "all" else "logits for the last position"
            said.append(f"FLOPs: matrix products only, 2·m·k·n each; {step};{attention} {where}.")
        stored, cached = common.dtypes(self.dtype, self.kv_dtype)
        if any(metric.name in MOVED for metric in metrics):
            said.append(
                "Bytes moved by unfused kernels: each operand read once, each result written once;"
                f" weights in {stored}, activations in {cached}."
            )
        if any(metric.unit == "bytes" and metric.name not in MOVED for metric in metrics):
            said.append(f"Bytes: weights in {stored}, {kinds.kept(subjects)} in {cached}, nothing else.")
            said += kinds.state_notes(subjects)
        return said

    def facts(self, work: Workload) -> dict[str, Any]:
        """The workload as it stands in the JSON."""
        stored, cached = common.dtypes(self.dtype, self.kv_dtype)
        facts = common.workload_facts(work, masked=self.masked, dtype=stored)
        return {"workload": facts, "kv_dtype": cached, "train": self.train}


MOVED = ("total_read_bytes", "total_written_bytes", "total_moved_bytes", "flops_per_byte")
"""Metrics of the traffic, not of what is kept."""
CONVENTION = "2 FLOPs per multiply-add; products only; bytes of weights and KV cache, every tensor rounded up"


def amount(metric: Metric, value: int | Fraction) -> Amount:
    """A metric's value, to be written in its own unit."""
    return Amount(value, metric.unit)
