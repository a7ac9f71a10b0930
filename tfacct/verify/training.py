"""The formula of a training step compared with its class, and with torch's memory tracker."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from tfacct.base.record import record
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Tick, unwatched
from tfacct.training.bounds import SAVED_LIMIT, bound
from tfacct.training.exact import ExactStep, exact, tracked_peak
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.recipe import Recipe
from tfacct.verify.checks import Pair

UNMEASURED = Fraction(1, 100)
"""Bound if no error was measured, as a share."""


@record
class BytesCheck:
    """Bytes by the formula, and measured bytes. `bound`: the error bound of the formula, as a share."""

    name: str
    formula: int
    measured: int
    bound: Fraction

    unit: ClassVar[str] = "bytes"

    @property
    def totals(self) -> tuple[int, int]:
        """Both sides."""
        return self.formula, self.measured

    def pairs(self) -> dict[str, Pair]:
        """Nothing is compared line by line."""
        return {}

    @property
    def error(self) -> Fraction:
        """The error of the formula, as a share of the measured bytes."""
        return Fraction(self.formula - self.measured, self.measured) if self.measured else Fraction(bool(self.formula))

    @property
    def agrees(self) -> bool:
        """True if the error is within the bound."""
        return abs(self.error) <= self.bound


def step_checks(
    model: LoadedModel, work: Workload, recipe: Recipe, progress: Tick = unwatched
) -> tuple[ExactStep, list[BytesCheck]]:
    """Checks of one model's step: bytes by its class and by the formula, saved bytes first. Needs torch and
    transformers. Raises UsageError for a model that the formula does not support."""
    formula = training_memory(model, work, recipe)  # raises before the class is built
    step = exact(model, work, recipe, progress)
    most = bound_of(model, work, recipe)
    # bounds are measured for the peak, with formulas whose saved bytes are nearly equal
    of_saved = max(most, Fraction(SAVED_LIMIT) / 100)
    checks = [
        BytesCheck("saved activations", int(formula.saved_bytes), step.saved_bytes, of_saved),
        BytesCheck("gradients", int(formula.gradients_bytes), step.gradients_bytes, most),
        BytesCheck("optimizer state", int(formula.optimizer_bytes), step.optimizer_bytes, most),
        BytesCheck("peak", int(formula.peak_bytes), step.peak_bytes, most),
    ]
    tracked = tracked_peak(model, work, recipe)
    if tracked is not None:
        checks.append(
            BytesCheck(
                "peak without optimizer state, by torch's MemTracker", _peak_before_update(formula), tracked, UNMEASURED
            )
        )
    return step, checks


def bound_of(model: LoadedModel, work: Workload, recipe: Recipe) -> Fraction:
    """The error bound of a peak, as a share."""
    found = bound(model, recipe, work)
    return UNMEASURED if found is None else Fraction(str(found.share))


def _peak_before_update(formula: TrainingMemory) -> int:
    """The peak before the optimizer step, without optimizer state."""
    *others, _ = formula.phases
    return max(int(phase.total - phase.optimizer_state) for phase in others)
