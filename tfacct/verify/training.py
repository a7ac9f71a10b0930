"""The formula of a training step against its class, and against torch's own memory tracker."""

from __future__ import annotations

from fractions import Fraction

from tfacct.base.record import record
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Tick, unwatched
from tfacct.training.bounds import SAVED_LIMIT, bound
from tfacct.training.exact import ExactStep, exact, tracked_peak
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.recipe import Recipe

UNMEASURED = Fraction(1, 100)
"""Bound where no error was measured, as a share."""


@record
class BytesCheck:
    """Bytes by the formula, and as measured. `bound`: how far the formula may be off, as a share."""

    name: str
    formula: int
    measured: int
    bound: Fraction

    @property
    def error(self) -> Fraction:
        """How far the formula is off, as a share of what was measured."""
        return Fraction(self.formula - self.measured, self.measured) if self.measured else Fraction(bool(self.formula))

    @property
    def agrees(self) -> bool:
        """True within the bound."""
        return abs(self.error) <= self.bound


def step_checks(
    model: LoadedModel, work: Workload, recipe: Recipe, progress: Tick = unwatched
) -> tuple[ExactStep, list[BytesCheck]]:
    """One model's step by its class, and its bytes by the formula, saved bytes first. Needs torch and transformers.
    Raises UsageError for a model that the formula does not answer."""
    formula = training_memory(model, work, recipe)  # raises before the class is built
    step = exact(model, work, recipe, progress)
    most = bound_of(model, work, recipe)
    of_saved = max(most, Fraction(SAVED_LIMIT) / 100)  # a bound is the peak's, of formulas that save nearly as much
    checks = [
        BytesCheck("saved activations", int(formula.step.saved_bytes()), step.saved_bytes, of_saved),
        BytesCheck("gradients", int(formula.phases[-1].gradients), step.gradients_bytes, most),
        BytesCheck("optimizer state", int(formula.step.optimizer_state), step.optimizer_bytes, most),
        BytesCheck("peak", int(formula.peak.total), step.peak_bytes, most),
    ]
    tracked = tracked_peak(model, work, recipe)
    if tracked is not None:
        checks.append(BytesCheck("peak by torch's MemTracker", _peak_before_update(formula), tracked, UNMEASURED))
    return step, checks


def bound_of(model: LoadedModel, work: Workload, recipe: Recipe) -> Fraction:
    """How far the formula of a peak may be off, as a share."""
    found = bound(model, recipe, work)
    return UNMEASURED if found is None else Fraction(str(found.share))


def _peak_before_update(formula: TrainingMemory) -> int:
    """The peak before the optimizer's step, without its state."""
    *others, _ = formula.phases
    return max(int(phase.total - phase.optimizer_state) for phase in others)
