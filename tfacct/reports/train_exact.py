"""`train --exact`: a training step of the class itself, by the modules that save for backward, next to the formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.reports import cells, compose, counting
from tfacct.reports.train import NOT_INCLUDED
from tfacct.reports.training import training_memory
from tfacct.training.adapters import lora_targets, target_modules
from tfacct.training.exact import Adapters, ExactStep, exact
from tfacct.training.memory import TrainingMemory
from tfacct.training.recipe import Recipe
from tfacct.training.states import precision

if TYPE_CHECKING:
    from tfacct.reports.budget import Budget


@record
class Measured:
    """A model's step of the class, and that of the formula, or why there is none."""

    model: LoadedModel
    work: Workload
    recipe: Recipe
    step: ExactStep
    formula: TrainingMemory | None = None
    no_formula: str | None = None

    @property
    def error(self) -> Fraction | None:
        """How far the formula's peak is from the class's, as a share of that."""
        return None if self.formula is None else _error(int(self.formula.peak.total), self.step.peak_bytes)


def measure(model: LoadedModel, work: Workload, recipe: Recipe, progress: Tick = unwatched) -> Measured:
    """One training step of the class, and of the formula where it answers. Raises TfacctError."""
    if recipe.mesh is not None:
        raise UsageError(
            f"nothing divides a class on the meta device: {option('exact', True)} runs on one device",
            f"leave the parallel layout out, or {option('exact')}",
        )
    step = exact(model, work, recipe, adapters_of(model, recipe), progress)
    try:
        return Measured(model, work, recipe, step, training_memory(model, work, recipe))
    except TfacctError as error:
        return Measured(model, work, recipe, step, None, error.message)


def adapters_of(model: LoadedModel, recipe: Recipe) -> Adapters:
    """LoRA's rank, and the names of the modules that peft adapts."""
    if recipe.lora is None or not model.config.hf_module_paths():  # the reference model takes none, and says so
        return None
    targets = lora_targets(recipe.lora)
    return targets.rank, target_modules(model, targets)


def slow_words(models: Sequence[LoadedModel]) -> str | None:
    """Warning about a class that takes long to run; None of others."""
    found = ((one.name, part.hf_loop) for one in models for part in one.architecture.parts() if part.hf_loop)
    name, loop = next(found, (None, None))
    return None if name is None else f"hint: the class of {name} loops over {loop}"


def train_exact(
    models: Sequence[LoadedModel],
    request: Request,
    recipe: Recipe,
    *,
    fit: Budget | None = None,
    by: str = "phase",
    progress: Tick = unwatched,
) -> Report:
    """Bytes of a training step of the class itself. `fit`: the memory of a device. Needs torch and transformers.
    Raises TfacctError."""
    recipe = recipe.checked()
    if len(models) > 1:
        raise UsageError(f"{option('exact', True)} runs the class of one model", "name one MODEL")
    (model,) = models
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    if by != "phase":
        raise UsageError(f"{option('by', by)} does not work with {option('exact', True)}", "its table is by module")
    one = measure(model, counting.workload(model, request), recipe, progress)
    facts = _facts(one, fit)
    runs = f"{one.step.class_name} with {one.step.attention}"
    return compose.report(
        "train",
        [model],
        _table(one.step),
        [facts],
        title=f"{compose.name_of(model)}: a training step in {precision(recipe)},"
        f" {compose.workload_words([model], request)}, {recipe.description}",
        answer=_answer(one, fit),
        convention=f"{runs} on the meta device: every tensor that autograd saves, and every tensor that is alive",
        notes=lambda _: [*_notes(one), *(fit.notes if fit is not None else ())],
        counted=f"by running {runs}, not by a formula",
        requests=[request],
        headline="peak_bytes",
        record="train-exact",
    )


def _answer(one: Measured, fit: Budget | None) -> str:
    step = one.step
    versions = ", ".join(f"{name} {'.'.join(version.split('.')[:2])}" for name, version in step.versions.items())
    needs = f"{units.binary(step.peak_bytes)} at its peak ({step.peak_bytes:,} bytes)"
    how = f"measured by running {step.class_name} on the meta device ({versions})"
    if fit is None:
        return f"Needs {needs}, {how}."
    return f"{'Fits' if step.peak_bytes <= fit.usable else 'Does not fit'} {fit.where}: needs {needs}, {how}."


def _notes(one: Measured) -> Iterator[str]:
    step = one.step
    yield (
        f"Peak phase: {step.peak_phase}. Weights {units.binary(step.parameter_bytes)}, all gradients"
        f" {units.binary(step.gradient_bytes)}, optimizer state {units.binary(step.optimizer_bytes)}."
    )
    if one.formula is None or one.error is None:
        yield f"The formula has no answer: {one.no_formula}."
    else:
        peak = int(one.formula.peak.total)
        yield f"The formula gives {units.binary(peak)} ({peak:,} bytes): {error_words(one.error)}."
    yield NOT_INCLUDED


def error_words(error: Fraction) -> str:
    """A formula's error in words: `0.02% more`."""
    if error == 0:
        return "the same"
    size, side = abs(error) * 100, "more" if error > 0 else "less"
    places = next((places for places in (1, 2, 3, 4) if round(size, places)), None)
    return f"under 0.0001% {side}" if places is None else f"{units.decimals(size, places)}% {side}"


def _error(formula: int, measured: int) -> Fraction:
    return Fraction(formula - measured, measured) if measured else Fraction(0)


def _table(step: ExactStep) -> Table:
    """Saved bytes by the modules that save them, largest first."""
    columns = (
        Column("module", "saved for backward by"),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    rows: tuple[Row, ...] = tuple(
        cells.with_share({"module": module, "bytes": size}, size, step.saved_bytes)
        for module, size in step.saved_by.items()
    )
    return columns, (rows,), ({"module": "saved for backward", "bytes": step.saved_bytes, "share": Fraction(1)},)


def _facts(one: Measured, fit: Budget | None) -> dict[str, Any]:
    step, recipe, formula = one.step, one.recipe, one.formula
    fits = None
    if fit is not None:
        fits = {**fit.facts, "fits": step.peak_bytes <= fit.usable}
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        "class_name": step.class_name,
        "versions": step.versions,
        "seconds": round(step.seconds, 3),
        "attention": step.attention,
        "dtype": recipe.dtype,
        "optimizer": recipe.optimizer,
        "recompute": recipe.recompute,
        "loss": recipe.loss,
        "weights_dtype": recipe.weights_dtype or recipe.dtype,
        "lora": recipe.lora,
        "weights_bytes": step.parameter_bytes,
        "optimizer_bytes": step.optimizer_bytes,
        "gradients_bytes": step.gradient_bytes,
        "saved_bytes": step.saved_bytes,
        "peak_bytes": step.peak_bytes,
        "peak_phase": step.peak_phase,
        "exact": True,
        "formula_saved_bytes": None if formula is None else int(formula.step.saved_bytes()),
        "formula_peak_bytes": None if formula is None else int(formula.peak.total),
        "formula_error": None if one.error is None else float(one.error),
        "formula_why_not": one.no_formula,
        "fit": fits,
        "lines": [{"module": module, "bytes": size} for module, size in step.saved_by.items()],
    }
