"""Metrics of a training step: its bytes, which follow from a recipe besides the ledger."""

from __future__ import annotations

from typing import Any, Protocol

from tfacct.accounts.metrics import Metric, Point
from tfacct.base.errors import UsageError


class StepMemory(Protocol):
    """The memory of a training step (`tfacct.training.step.TrainingMemory`)."""

    @property
    def step(self) -> Any:
        """The step: `saved_bytes()` and `optimizer_state`."""

    @property
    def phases(self) -> Any:
        """Its phases; the last one is the optimizer's step, with all gradients."""

    @property
    def peak(self) -> Any:
        """The phase with the most bytes."""


def memory_of(point: Point) -> StepMemory:
    """The training step of a point. Raises TfacctError where the formula does not count it."""
    if point.step is None:
        raise UsageError("the bytes of a training step need a recipe, which this point has none of")
    return point.step(point.work)


def peak_phase(point: Point) -> str:
    """Name of the phase of a training step that decides."""
    return str(memory_of(point).peak.name)


STEP_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "saved_bytes",
            "bytes",
            "Bytes of activations that a training step saves for its backward pass.",
            lambda point: memory_of(point).step.saved_bytes(),
            of_step=True,
        ),
        Metric(
            "gradients_bytes",
            "bytes",
            "Bytes of all gradients.",
            lambda point: memory_of(point).phases[-1].gradients,
            of_step=True,
            whole=True,
        ),
        Metric(
            "optimizer_bytes",
            "bytes",
            "Bytes of the optimizer's state.",
            lambda point: memory_of(point).step.optimizer_state,
            of_step=True,
        ),
        Metric(
            "peak_bytes",
            "bytes",
            "Bytes at the peak of a training step.",
            lambda point: memory_of(point).peak.total,
            of_step=True,
            whole=True,
        ),
    )
}
"""Metrics of a model whose training step is counted, by name."""
PEAK = "peak_bytes"
