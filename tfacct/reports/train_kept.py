"""A training step as somebody else than a transformers class runs it, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.accounts.instants import peak
from tfacct.accounts.sharding.shards import corrects
from tfacct.accounts.training import Step
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.kept_as import REFERENCE, able, check, kept_step, runner
from tfacct.reports.kept_as import instants as every_instant
from tfacct.reports.train_tables import by_part, instant_facts, kept_lines, parts, tensors
from tfacct.reports.train_tables import timeline as instants
from tfacct.reports.training import Trained
from tfacct.training.recipe import Recipe

if TYPE_CHECKING:
    from tfacct.reports.budget import Budget


class Kept(NamedTuple):
    """One model's training step, of which only what is kept is counted."""

    subject: LoadedModel
    work: Workload
    recipe: Recipe
    step: Step


def _of(subject: LoadedModel, work: Workload, recipe: Recipe, as_: str, *, alone: bool) -> Kept | Trained:
    """A model's step. `alone`: of several models no instants are asked for, which takes longer than all else."""
    step = kept_step(subject, work, recipe, as_)
    found = every_instant(subject, step, work, recipe, as_) if alone else []
    if not found:
        return Kept(subject, work, recipe, step)
    return Trained(subject, work, recipe, step, found, peak(found))


def train_kept(
    subjects: Sequence[LoadedModel], request: Request, recipe: Recipe, as_: str, *, fit: Budget | None, by: str
) -> Report:
    """Bytes that a training step keeps as `as_` runs it, and its instants where they are told. Raises UsageError for a
    model with a part that has no rule."""
    who = runner(as_)
    if fit is not None:
        raise UsageError(f"{option('fit')} is not answered for a step as {who.who} runs it", "leave it out")
    if recipe.mesh is not None:
        raise UsageError(f"no mesh is counted as {who.who} runs a step", "leave its ranks out")
    check(recipe, as_)
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    subjects, left_out = counting.in_groups(*able(subjects, recipe, as_), request)
    alone = len(subjects) == 1
    every = [_of(subject, counting.workload(subject, request), recipe, as_, alone=alone) for subject in subjects]
    one = every[0] if len(every) == 1 else None
    if one is None and by != "instant":
        raise UsageError(f"{option('by', by)} goes with one MODEL")
    table = _several(every) if one is None else _table(one, by)
    whose = "Training steps" if one is None else f"{compose.name_of(subjects[0])}: a training step"
    again = ", scores and softmax again" if recipe.recompute == "attention" else ""
    return compose.report(
        "train",
        subjects,
        table,
        [_facts(each, as_) for each in every],
        title=f"{whose} in {recipe.dtype}, {compose.workload_words(subjects, request)}, as {who.who} runs it{again}",
        answer=_answer(every),
        convention=who.counted,
        counted=who.counted,
        notes=lambda _: _notes(every, as_),
        requests=[request],
        left_out=left_out,
        headline="kept_bytes",
    )


def _table(one: Kept | Trained, by: str) -> Table:
    if by == "tensor":
        return tensors(one)
    return instants(one) if isinstance(one, Trained) and by == "instant" else parts(one)


def _notes(every: Sequence[Kept | Trained], as_: str) -> list[str]:
    if len(every) > 1:
        return ["Peaks are left out here: ask for one model to read its own."]
    (one,) = every
    return [
        runner(as_).peak if isinstance(one, Kept) else f"Kept for the backward pass: {units.binary(one.step.kept())}."
    ]


def _answer(every: Sequence[Kept | Trained]) -> str:
    if len(every) == 1 and isinstance(every[0], Trained):
        return f"Needs {units.binary(every[0].peak.total)} at its peak ({every[0].peak.name})."
    if len(every) == 1:
        return f"Keeps {units.binary(every[0].step.kept())} for its backward pass."
    small, large = (side(every, key=lambda each: int(each.step.kept())) for side in (min, max))
    said = (f"{units.binary(end.step.kept())} ({end.subject.name})" for end in (small, large))
    return f"Keep from {' to '.join(said)} for the backward pass."


def _several(every: Sequence[Kept | Trained]) -> Table:
    columns = (
        Column("model", "model"),
        Column("context", "context", "count", drop=3),
        Column("most", "most of it in", drop=2),
        Column("kept_bytes", "kept", "bytes"),
    )
    rows: tuple[Row, ...] = tuple(
        {
            "model": compose.name_of(each.subject),
            "context": each.work.context,
            "most": max(by_part(each).items(), key=lambda item: item[1])[0],
            "kept_bytes": each.step.kept(),
        }
        for each in every
    )
    return columns, (rows,), ()


def _facts(one: Kept | Trained, as_: str) -> dict[str, Any]:
    """As of a step whose peak is counted, null where nothing is."""
    step, recipe, known = one.step, one.recipe, one if isinstance(one, Trained) else None
    each = [(tensor.path, step.pass_.bytes(tensor.count * tensor.elements)) for tensor in step.ledger.tensors()]
    stored, kept = sum(size for _, size in each), kept_lines(one)
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        "profile": as_,
        "dtype": recipe.dtype,
        "optimizer": recipe.optimizer,
        "recompute": recipe.recompute,
        "loss": recipe.loss,
        "weights_dtype": recipe.dtype,
        "lora": None,
        "lora_adapters": None,
        "weights_bytes": stored,
        "optimizer_bytes": step.states,
        "gradients_bytes": sum(size for path, size in each if not corrects(path)),
        "kept_bytes": step.kept(),
        "peak_bytes": None if known is None else known.peak.total,
        "peak_instant": None if known is None else known.peak.name,
        "peak_least_bytes": None if known is None else known.least,
        "exact": as_ == REFERENCE,
        "mesh": None,
        "sent_bytes": None,
        "whole": None,
        "instants": [] if known is None else instant_facts(known),
        "kept": kept,
        "lines": kept,
        "fit": None,
    }
