"""A training step as somebody else than a transformers class runs it: what it keeps, and where it is told its peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Literal, NamedTuple, get_args

from tfacct.accounts.instants import Instant
from tfacct.accounts.optimizers import optimizer
from tfacct.accounts.training import Step
from tfacct.architecture.parts.latent import Form
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError, UsageError, nearest
from tfacct.base.spelling import option
from tfacct.ledger.kept import Pass
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.profiles.fused import fused
from tfacct.profiles.reference import Reference
from tfacct.reports.counting import LeftOut
from tfacct.reports.passes import MANY
from tfacct.reports.stored import stored
from tfacct.training.recipe import Recipe

As = Literal["transformers", "reference", "fused"]
TRANSFORMERS: As = "transformers"
REFERENCE: As = "reference"
FUSED: As = "fused"
FORM: Form = "expanded"
"""Form of latent attention in the reference model's step where it is `auto`: the classes' own."""


class Runner(NamedTuple):
    """Who runs the step: `counted` says what is, `peak` why no peak is told, and `passed` makes its pass."""

    who: str
    counted: str
    peak: str
    passed: Callable[[Transformer, Recipe, Workload], Pass]


def _reference(shape: Transformer, recipe: Recipe, work: Workload) -> Pass:
    batch, tokens = (size if isinstance(size, int) else MANY for size in (work.batch, work.tokens))
    source = work.source if isinstance(work.source, int) else MANY
    return Reference(recipe.in_fp32, batch, tokens).passed(shape, source)


def _fused(shape: Transformer, recipe: Recipe, _: Workload) -> Pass:
    if recipe.in_fp32:
        raise ConfigError("Megatron's algebra is of 16 bits")
    return fused(shape, selective=recipe.recompute == "attention")


RUNNERS: dict[str, Runner] = {
    REFERENCE: Runner(
        "the reference model",
        "as the reference model of this program runs it, its loss the mean of its results: every tensor that autograd"
        " keeps",
        "",
        _reference,
    ),
    FUSED: Runner(
        "Megatron",
        "as Korthikanti et al. (2022) write down what Megatron keeps, with dropouts and without statistics of norms:"
        " algebra that was not measured here",
        "It counts kept tensors only, so no peak is given.",
        _fused,
    ),
}
"""Who else than transformers, by the names that `as` takes."""


def runner(as_: str) -> Runner:
    """Who runs the step. Raises UsageError for a name that is not known."""
    if as_ not in RUNNERS:
        known = get_args(As)
        raise UsageError(f"{option('as_')} is {', '.join(known)}, not {as_!r}", nearest(as_, known))
    return RUNNERS[as_]


def check(recipe: Recipe, as_: str) -> None:
    """Refuse what of a recipe is of the transformers classes, or changes the peak alone."""
    who, plain = runner(as_).who, Recipe(recipe.dtype, recipe.optimizer)
    for field in fields(recipe):
        given = getattr(recipe, field.name)
        if as_ == FUSED and (field.name, given) == ("recompute", "attention"):  # the paper's selective recomputation
            continue
        if given != getattr(plain, field.name):
            raise UsageError(f"{option(field.name, given)} is not counted as {who} runs it", "leave it out")


def refusal(subject: LoadedModel, recipe: Recipe, as_: str) -> str | None:
    """Reason why what a model keeps is not counted; None if it is."""
    try:
        runner(as_).passed(subject.architecture, recipe, Workload(1, 1, 1))
    except ConfigError as error:
        return str(error)
    return None


def kept_step(subject: LoadedModel, work: Workload, recipe: Recipe, as_: str) -> Step:
    """The training step of a model, in which what is held is not always known. Raises UsageError for one that is not
    counted."""
    why = refusal(subject, recipe, as_)
    if why is not None:
        raise UsageError(f"{subject.name}: {why}", _advice(subject, recipe))
    run, each = runner(as_).passed(subject.architecture, recipe, work), width(recipe.dtype)
    how, tensors, bytes_each = optimizer(recipe.optimizer), stored(subject), each.bits // 8
    states, update = how.states(tensors, bytes_each), how.update(tensors, bytes_each)
    less = update.most - update.least
    return Step(run, subject.ledger, work.axes(), each, states, update.most, unsure=less)


def _advice(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Advice where such a step is refused: the class's own, where that is counted."""
    from tfacct.reports import training

    own = training.refusal(subject, recipe) is None
    return "its step is counted as transformers runs it" if own else None


def instants(subject: LoadedModel, step: Step, work: Workload, recipe: Recipe, as_: str) -> list[Instant]:
    """The instants of such a step; none of one that is algebra."""
    if as_ != REFERENCE:
        return []
    from tfacct.reports.alive import instants as alive

    return alive(subject.running(FORM).architecture, step, recipe.dtype, work)


def able(subjects: Sequence[LoadedModel], recipe: Recipe, as_: str) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose parts all have rules, and the others. One model alone is refused where it is counted."""
    if len(subjects) == 1:
        return list(subjects), []
    reasons: dict[str | None, list[LoadedModel]] = {}
    for subject in subjects:
        reasons.setdefault(refusal(subject, recipe, as_), []).append(subject)
    able = reasons.pop(None, [])
    if not able:
        raise UsageError(f"no training step of these is counted: {'; '.join(filter(None, reasons))}")
    return able, [left for why, group in reasons.items() for left in LeftOut.of(group, why or "")]
