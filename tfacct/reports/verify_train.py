"""`verify --train`: the formula of a training step against the class itself, and torch's own tracker of memory."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.reports import compose, counting
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import Counting
from tfacct.reports.train import error_words, trainable
from tfacct.training import bounds
from tfacct.training.bounds import SAVED_LIMIT
from tfacct.training.exact import ExactStep, exact, tracked_peak
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.recipe import Recipe
from tfacct.verify.checks import in_one_go

UNMEASURED = Fraction(1, 100)
"""How far the formula may be off, as a share, where no error bound was measured."""


@record
class Compared:
    """Bytes by the formula, and as measured. `bound`: how far the formula may be off, as a share."""

    what: str
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


@record
class Verified:
    """One model's step by the formula and by its class, saved bytes first."""

    model: LoadedModel
    work: Workload
    step: ExactStep
    compared: list[Compared]

    @property
    def agrees(self) -> bool:
        """True if everything is within the bound."""
        return all(each.agrees for each in self.compared)


def verify_train(
    models: Sequence[LoadedModel],
    request: Request,
    terms: Counting,
    *,
    against: str | None = None,
    progress: Tick = unwatched,
) -> Report:
    """Compare the formula of each model's training step with its class on the meta device. Needs torch and
    transformers. Raises UsageError for a model that the formula does not answer."""
    if against not in (None, "transformers"):
        raise UsageError(f"{option('against')} knows transformers, not {against!r}")
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    recipe = terms.recipe
    models, left_out = trainable(models, recipe)
    recipe = recipe.for_models(models)
    with in_one_go():
        verified = [_verified(model, counting.workload(model, request), recipe, progress) for model in models]
    one = verified[0] if len(verified) == 1 else None
    words = f"{compose.workload_words(models, request)}, {recipe.description}"
    who = f"{compose.name_of(models[0])}: a training step" if one else "Training steps"
    return compose.report(
        "verify",
        models,
        _one(one) if one else _several(verified),
        [_facts(each, recipe) for each in verified],
        title=f"{who} in {recipe.dtype} against the class, {words}",
        convention=f"as transformers runs it with {recipe.runs_with}: {TRAINING}",
        answer=_answer(verified),
        notes=lambda at: _notes(verified[at]),
        counted=recipe.counted,
        requests=[request],
        left_out=left_out,
        defaults=[],
        headline="saved_bytes",
        agrees=all(each.agrees for each in verified),
    )


def _verified(model: LoadedModel, work: Workload, recipe: Recipe, progress: Tick) -> Verified:
    recipe = recipe.for_model(model)
    formula = training_memory(model, work, recipe)  # says what it does not answer before the class is built
    step = exact(model, work, recipe, progress)
    bound = bound_of(model, work, recipe)
    of_saved = max(bound, Fraction(SAVED_LIMIT) / 100)  # a bound is the peak's, of formulas that save nearly as much
    compared = [
        Compared("saved for backward", int(formula.step.saved_bytes()), step.saved_bytes, of_saved),
        Compared("gradients", int(formula.phases[-1].gradients), step.gradient_bytes, bound),
        Compared("optimizer state", int(formula.step.optimizer_state), step.optimizer_bytes, bound),
        Compared("peak", int(formula.peak.total), step.peak_bytes, bound),
    ]
    tracked = tracked_peak(model, work, recipe)
    if tracked is not None:
        compared.append(Compared("peak by torch's MemTracker", _before_update(formula), tracked, UNMEASURED))
    return Verified(model, work, step, compared)


def bound_of(model: LoadedModel, work: Workload, recipe: Recipe) -> Fraction:
    """How far the formula of a peak may be off, as a share."""
    found = bounds.bound(model, recipe, work)
    return UNMEASURED if found is None else Fraction(str(found.share))


def _before_update(formula: TrainingMemory) -> int:
    """The peak before the optimizer's step, without its state."""
    *others, _ = formula.phases
    return max(int(phase.total - phase.optimizer_state) for phase in others)


def _answer(verified: Sequence[Verified]) -> str:
    every = [each for one in verified for each in one.compared]
    worst = max(every, key=lambda each: abs(each.error))
    off = {one.model.name: [each.what for each in one.compared if not each.agrees] for one in verified}
    if said := [f"{name} ({', '.join(what)})" for name, what in off.items() if what]:
        return f"{sum(map(len, off.values())):,} of {len(every):,} checks are out of bounds: {'; '.join(said)}."
    if worst.error == 0:
        return f"All {len(every):,} checks agree, to the byte."
    return f"All {len(every):,} checks are within bounds: {worst.what} is {error_words(worst.error)} by the formula."


def _one(verified: Verified) -> Table:
    columns = (
        Column("what", "bytes of"),
        Column("formula", "formula", "count"),
        Column("measured", "measured", "count"),
        Column("difference", "difference", drop=1),
        Column("verdict", "", "verdict"),
    )
    rows: tuple[Row, ...] = tuple(
        {
            "what": each.what,
            "formula": each.formula,
            "measured": each.measured,
            "difference": error_words(each.error),
            "verdict": "ok" if each.agrees else "DIFFERS",
        }
        for each in verified.compared
    )
    return columns, (rows,), ()


def _several(verified: Sequence[Verified]) -> Table:
    columns = (
        Column("model", "model"),
        Column("saved", "saved", drop=1),
        Column("peak", "peak"),
        Column("formula", "peak by the formula", "count", drop=2),
        Column("measured", "by the class", "count", drop=2),
        Column("verdict", "", "verdict"),
    )
    rows: list[Row] = []
    for one in verified:
        by_name = {each.what: each for each in one.compared}
        saved, peak = by_name["saved for backward"], by_name["peak"]
        rows.append(
            {
                "model": compose.name_of(one.model),
                "saved": error_words(saved.error),
                "peak": error_words(peak.error),
                "formula": peak.formula,
                "measured": peak.measured,
                "verdict": "ok" if one.agrees else "DIFFERS",
            }
        )
    return columns, (tuple(rows),), ()


def _notes(verified: Sequence[Verified]) -> list[str]:
    versions = {f"{name} {version}" for one in verified for name, version in one.step.versions.items()}
    return [f"The class ran on the meta device, all layers at full size, with {', '.join(sorted(versions))}."]


def _facts(verified: Verified, recipe: Recipe) -> dict[str, Any]:
    saved, *_ = verified.compared
    blocks = sum(stack.count for stack in verified.model.architecture.stacks)
    return {
        "workload": counting.workload_facts(verified.work, dtype=recipe.dtype),
        "agrees": verified.agrees,
        "blocks_traced": blocks,
        "block_count": blocks,
        "optimizer": recipe.optimizer,
        "recompute": recipe.recompute,
        "attention": verified.step.attention,
        "loss": recipe.loss,
        "lora": recipe.lora,
        "weights_dtype": recipe.weights_dtype or recipe.dtype,
        "saved_bytes": saved.formula,
        "measured_saved_bytes": saved.measured,
        "witnesses": [
            {
                "witness": each.what,
                "unit": "bytes",
                "counted": each.formula,
                "measured": each.measured,
                "equal": each.agrees,
                "error": float(each.error),
                "differing": {},
            }
            for each in verified.compared
        ],
        "lines": [],
    }
