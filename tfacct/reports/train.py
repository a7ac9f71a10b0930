"""Bytes of a training step: its instants, the one that decides, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report
from tfacct.reports import compose, counting
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import LeftOut
from tfacct.reports.ranks import fitting_words, in_devices
from tfacct.reports.train_fit import budgeted, fits_in, levers
from tfacct.reports.train_tables import by_part, instant_facts, kept_lines, parts, several, tensors, timeline
from tfacct.reports.training import Trained, of_another_size, reads_images, refusal, trained
from tfacct.training import offload, states
from tfacct.training.batch_sizes import size_facts
from tfacct.training.bounds import accuracy, decides
from tfacct.training.loss import CHUNKS
from tfacct.training.optimizers import optimizer
from tfacct.training.recipe import FP32, Recipe

if TYPE_CHECKING:
    from tfacct.reports.budget import Budget

CHUNKED = (
    f"The loss is computed in {CHUNKS} chunks of the tokens, under torch.utils.checkpoint: the training loop's own, not"
    " the class's. The head runs again for each."
)
By = Literal["instant", "tensor", "part"]


@in_devices
def train(
    subjects: Sequence[LoadedModel],
    request: Request,
    recipe: Recipe,
    *,
    fit: Budget | None = None,
    by: By = "instant",
) -> Report:
    """Bytes of a training step as the transformers classes run it. `fit`: the memory of a device. Raises
    UsageError."""
    recipe = recipe.checked()
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    subjects, left_out = trainable(subjects, recipe)
    subjects, further = _of_size(subjects, request)
    left_out += further
    recipe = recipe.for_models(subjects)
    every = [trained(subject, counting.workload(subject, request), recipe) for subject in subjects]
    one = every[0] if len(every) == 1 else None
    fits = None if one is None or fit is None else budgeted(one, fit)
    if by not in ("instant", "tensor", "part"):
        raise UsageError(f"{option('by')} is instant, tensor or part, not {by!r}")
    if one is None:
        if by != "instant":
            raise UsageError(f"{option('by', by)} goes with one MODEL")
        table = several(every, fit)
    elif by != "instant":
        table = tensors(one) if by == "tensor" else parts(one)
    else:
        table = levers(fits) if fits and fits["changes"] else timeline(one)
    facts = [_facts(each, fits) for each in every]
    who = "Training steps" if one is None else f"{compose.name_of(subjects[0])}: a training step"
    who += "" if recipe.mesh is None else f" on one of {recipe.mesh.ranks:,} ranks"
    return compose.report(
        "train",
        subjects,
        table,
        facts,
        title=f"{who} in {states.precision(recipe)}, {compose.workload_words(subjects, request)}, {recipe.description}",
        answer=f"{_answer(every, fits, fit)}{_check(one, fit)}",
        convention=f"as transformers runs it with {recipe.runs_with}: {TRAINING}",
        notes=lambda at: [*_notes(every[at], facts[at]), *(fit.notes if fit is not None else ())],
        counted=recipe.counted,
        details=lambda at: _details(every[at]),
        requests=[request],
        left_out=left_out,
        headline="peak_bytes",
    )


def _details(shown: Sequence[Trained]) -> Iterator[str]:
    """Sentences about what is counted, and which tokens models learn from."""
    yield COUNTED
    known = {_labels(one.subject) for one in shown}
    yield from (sentence for sentence in (LABELS, ONE_LABEL, OF_IMAGE, SHIFTED) if sentence in known)


def _labels(subject: LoadedModel) -> str:
    shape = subject.architecture
    if shape.encoder is not None:
        return SHIFTED
    if reads_images(subject):
        return OF_IMAGE
    return ONE_LABEL if shape.classes is not None and shape.classes.pooled else LABELS


COUNTED = (
    "Counted is what autograd saves and makes. Not included: the allocator's rounding and fragmentation, what kernels"
    " use inside themselves, the device's context."
)
SECOND = "The optimizer's step is the second one, when its moments are there."
LABELS = f"The labels are the tokens. {SECOND}"
ONE_LABEL = f"Each sequence has one label. {SECOND}"
OF_IMAGE = f"Each image has one label. {SECOND}"
SHIFTED = f"The decoder's tokens are its labels, shifted by one. {SECOND}"


def trainable(subjects: Sequence[LoadedModel], recipe: Recipe) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose step is counted, and the others by reason. One model alone is refused where it is counted."""
    if len(subjects) == 1:
        return list(subjects), []
    reasons: dict[str, list[LoadedModel]] = {}
    for subject in subjects:
        reasons.setdefault(refusal(subject, recipe) or "", []).append(subject)
    able = reasons.pop("", [])
    if not able:
        raise UsageError(f"no training step of these is counted: {'; '.join(reasons)}")
    others = [subject for group in reasons.values() for subject in group]
    return able, LeftOut.of(others, "training step not measured; ask for one to read why")


def _of_size(subjects: list[LoadedModel], request: Request) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose class takes a step's size, and those of images of another; where there is none, each says why."""

    def other(one: LoadedModel) -> bool:
        return not counting.takes_context(one, counting.own_request(one, request).ctx) or of_another_size(
            one, counting.workload(one, request)
        )

    fitting = [one for one in subjects if not other(one)]
    if not fitting:
        return subjects, []
    return fitting, LeftOut.of([*filter(other, subjects)], "takes images of its own size alone while it trains")


def _answer(every: Sequence[Trained], fits: dict[str, Any] | None, fit: Budget | None) -> str:
    if len(every) > 1:
        if fit is not None:
            fitting = sum(fits_in(each, fit) for each in every)
            where = fitting_words(fit, every[0].recipe.mesh)
            return f"{fitting:,} of {len(every):,} models fit {where} at the context shown."
        ends = (side(every, key=lambda each: each.peak.total) for side in (min, max))
        small, large = (
            f"{'' if end.exact else '≈ '}{units.binary(end.peak.total)} ({end.subject.name})" for end in ends
        )
        return f"Needs from {small} to {large} at the peak."
    (one,) = every
    sure = f"from {units.binary(one.least)} to " if one.least != one.peak.total else "" if one.exact else "≈ "
    needs = f"{sure}{units.binary(one.peak.total)} at its peak ({one.peak.name})"
    if fits is None or fit is None:
        return f"Needs {needs}."
    if reads_images(one.subject):
        return _answer_of_images(one, needs, fits, fit)
    where, longest = fitting_words(fit, one.recipe.mesh), fits["largest_context"]
    most = "not even one token fits" if longest is None else f"{longest:,} tokens fit"
    weights = int(one.step.parameters)
    alone = f": the weights alone are {units.binary(weights)}" if weights > fit.usable else ""
    if longest is not None and longest == one.subject.position_limit:
        most = f"{longest:,} tokens, the end of its position embedding, fit"
    at_most = f"{most} at batch {one.work.batch:,}"
    past = one.subject.past_positions(one.work)
    if past is not None:
        return f"Cannot run: {past}. {where[0].upper()}{where[1:]}, {at_most}."
    if one.peak.total <= fit.usable:
        largest = fits["largest_batch"]
        if largest is None:  # a pipeline has as many in flight in any batch
            return f"Fits {where}: needs {needs}; {at_most}, or any number of sequences."
        return f"Fits {where}: needs {needs}; {at_most}, or {largest:,} sequence{'' if largest == 1 else 's'}."
    verb = "Does not" if one.least > fit.usable else "May not"
    return f"{verb} fit {where}: needs {needs}; {at_most}{alone}."


def _check(one: Trained | None, fit: Budget | None) -> str:
    """What to do if the error bound decides whether a step fits."""
    if one is None or fit is None or not decides(one.bound, int(one.peak.total), fit.usable):
        return ""
    how = "" if one.recipe.mesh is not None else f": check with {option('exact', True)}"
    return f" The budget is within the error bound{how}."


def _answer_of_images(one: Trained, needs: str, fits: dict[str, Any], fit: Budget) -> str:
    """The answer about images, all of one size."""
    most, where = fits["largest_batch"], fitting_words(fit, one.recipe.mesh)
    at_most = "not even one image fits" if most is None else "one image fits" if most == 1 else f"{most:,} images fit"
    verb = "Fits" if one.peak.total <= fit.usable else "Does not fit" if one.least > fit.usable else "May not fit"
    return f"{verb} {where}: needs {needs}; {at_most}{'' if most in (None, 1) else ' at a time'}."


def _notes(every: Sequence[Trained], facts: Sequence[dict[str, Any]]) -> list[str]:
    if len(every) != 1:
        return [UNSURE] if any(not each.exact for each in every) else []
    (one,) = every
    parts = sorted(by_part(one).items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {units.binary(taken)}" for name, taken in parts if taken)
    how = optimizer(one.recipe.optimizer)
    paged = ["The moments are in paged memory, which can be moved to the host."] if how.paged else []
    unsure = "While it updates, the order in which the optimizer is handed the parameters decides what it holds."
    return [
        *([unsure] if one.least < one.peak.total else []),
        *paged,
        *([offload.words(one.host)] if one.recipe.offload is not None else []),
        *([IMAGES] if reads_images(one.subject) and not one.recipe.in_fp32 else []),
        *([CHUNKED] if one.recipe.loss == "chunked" else []),
        f"Kept for the backward pass: {units.binary(one.step.kept())} ({named}).",
        *(_lent(one) if one.recipe.lora is not None else [_stored(one.recipe)]),
        *(_of_rank(one, facts[0]) if one.recipe.mesh is not None else []),
        *([UNPACKED] if one.subject.quantized else []),
        accuracy(one.subject, one.recipe, one.bound),
    ]


UNSURE = "≈: within an error bound, which the answer for one model prints."
IMAGES = "A batch of images is in fp32, as an image processor makes it, and stands among the weights."
UNPACKED = "The config stores its weights quantized; a training step holds them as said here."


def _stored(recipe: Recipe) -> str:
    if recipe.autocast:
        until = "until the forward pass ends" if recipe.recompute == "full" else "for the backward pass"
        apart = {"attention": ", but attention's", "none": ", but the head's" if recipe.loss == "chunked" else ""}
        head = apart.get(recipe.recompute, "")
        return (
            f"Weights, gradients and the stream are in fp32. The pass runs under torch.autocast in {recipe.dtype}: it"
            f" casts each weight of a product once, and the casts stay {until}{head}."
        )
    if recipe.weights_dtype == FP32 and recipe.shards_weights:
        return (
            f"Weights, gradients and moments are stored in fp32; the pass and what is gathered are in {recipe.dtype}."
        )
    if recipe.master_weights is not None:
        return states.MASTER_WEIGHTS[recipe.fp32_gradients]
    only = "" if recipe.in_fp32 else ": no fp32 copy of the weights"
    return f"Weights and gradients are in {recipe.dtype}{only}."


def _adapters(one: Trained) -> dict[str, Any]:
    from tfacct.reports import lora

    return lora.facts(one)


def _of_rank(one: Trained, facts: dict[str, Any]) -> list[str]:
    from tfacct.reports import train_ranks_said

    return train_ranks_said.notes(one, facts)


def _divided(one: Trained) -> dict[str, Any]:
    if one.recipe.mesh is None:
        return {"mesh": None, "sent_bytes": None, "whole": None}
    from tfacct.reports import train_ranks_said

    return train_ranks_said.facts(one)


def _lent(one: Trained) -> list[str]:
    from tfacct.reports import lora

    return lora.notes(one)


def _facts(one: Trained, fits: dict[str, Any] | None) -> dict[str, Any]:
    step, recipe, kept = one.step, one.recipe, kept_lines(one)
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        "profile": f"transformers, {recipe.attention}",
        "dtype": recipe.dtype,
        "optimizer": recipe.optimizer,
        "recompute": recipe.recompute,
        **size_facts(one.work, recipe),
        "loss": recipe.loss,
        "weights_dtype": recipe.weights_dtype or recipe.dtype,
        "master_weights": recipe.master_weights,
        "gradient_dtype": recipe.gradient_dtype or (FP32 if recipe.weights_dtype == FP32 else recipe.dtype),
        "lora": recipe.lora,
        "lora_adapters": None if recipe.lora is None else _adapters(one),
        "weights_bytes": step.parameters,
        "optimizer_bytes": step.states,
        "master_weights_bytes": step.master_weights,
        "gradients_bytes": one.instants[-1].gradients,
        "kept_bytes": step.kept(),
        "offload": recipe.offload,
        "host_bytes": one.host.total,
        "moved_bytes": one.host.moved,
        "peak_bytes": one.peak.total,
        "peak_instant": one.peak.name,
        "peak_least_bytes": one.least,
        "error_bound": None if one.bound is None else one.bound.share,
        "exact": one.exact,
        **_divided(one),
        "instants": instant_facts(one),
        "kept": kept,
        "lines": kept,
        "fit": fits,
    }
