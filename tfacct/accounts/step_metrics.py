"""Metrics of a training step: its bytes, which follow from a recipe beside the ledger."""

from __future__ import annotations

from tfacct.accounts.metrics import Metric, Point
from tfacct.accounts.timeline import peak, sums, timeline
from tfacct.accounts.training import Step
from tfacct.base.errors import UsageError
from tfacct.ledger.einsum import Size


def step_of(point: Point) -> Step:
    """The training step of a point. Raises TfacctError where it is not counted."""
    if point.step is None:
        raise UsageError("the bytes of a training step need a recipe, which this point has none of")
    return point.step(point.work)


def _gradients(point: Point) -> Size:
    step = step_of(point)
    if step.run.encoder is not None:
        from tfacct.accounts.timeline_pairs import PairTimeline

        return PairTimeline(step).all_gradients
    return sums(step).update().gradients


def fullest(point: Point) -> str:
    """Name of the instant of a training step that decides."""
    return peak(timeline(step_of(point))).name


STEP_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "kept_bytes",
            "bytes",
            "Bytes that the forward pass of a training step keeps for its backward pass.",
            lambda point: step_of(point).kept(),
            of_step=True,
        ),
        Metric("gradients_bytes", "bytes", "Bytes of all gradients.", _gradients, of_step=True, whole=True),
        Metric(
            "optimizer_bytes",
            "bytes",
            "Bytes that the optimizer keeps from step to step.",
            lambda point: step_of(point).states,
            of_step=True,
        ),
        Metric(
            "peak_bytes",
            "bytes",
            "Bytes at the fullest instant of a training step.",
            lambda point: peak(timeline(step_of(point))).total,
            of_step=True,
            whole=True,
        ),
    )
}
"""Metrics of a model whose training step is counted, by name."""
PEAK = "peak_bytes"
