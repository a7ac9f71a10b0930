"""What a training step keeps as somebody else than a transformers class runs it, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tfacct.accounts.training import Step
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.counting import LeftOut
from tfacct.reports.kept_as import REFERENCE, check, kept_step, refusal, runner
from tfacct.reports.train_tables import by_part, kept_lines, parts, tensors
from tfacct.reports.training import Recipe


class Kept(NamedTuple):
    """One model's training step, of which only what is kept is counted."""

    subject: LoadedModel
    work: Workload
    recipe: Recipe
    step: Step


def train_kept(
    subjects: Sequence[LoadedModel], request: Request, recipe: Recipe, as_: str, *, fit: int | None, by: str
) -> Report:
    """Bytes that a training step keeps as `as_` runs it. Raises UsageError for a model with a part that has no rule."""
    who = runner(as_)
    if recipe.mesh is not None:
        raise UsageError(f"no mesh is counted as {who.who} runs a step", "leave its ranks out")
    check(recipe, as_)
    if fit is not None:
        raise UsageError(f"{option('fit')} needs the peak, which is not counted as {who.who} runs it")
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    subjects, left_out = _able(subjects, recipe, as_)
    every = []
    for subject in subjects:
        work = counting.workload(subject, request)
        every.append(Kept(subject, work, recipe, kept_step(subject, work, recipe, as_)))
    one = every[0] if len(every) == 1 else None
    if one is None and by != "instant":
        raise UsageError(f"{option('by', by)} goes with one MODEL")
    table = _several(every) if one is None else tensors(one) if by == "tensor" else parts(one)
    whose = "Training steps" if one is None else f"{compose.name_of(subjects[0])}: a training step"
    again = ", scores and softmax again" if recipe.checkpoint == "attention" else ""
    return compose.report(
        "train",
        subjects,
        table,
        [_facts(each, as_) for each in every],
        title=f"{whose} in {recipe.dtype}, {compose.workload_words(subjects, request)}, as {who.who} runs it{again}",
        answer=_answer(every),
        convention=who.counted,
        counted=who.counted,
        notes=lambda _: (who.peak,),
        requests=[request],
        left_out=left_out,
        headline="kept_bytes",
    )


def _able(subjects: Sequence[LoadedModel], recipe: Recipe, as_: str) -> tuple[list[LoadedModel], list[LeftOut]]:
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


def _answer(every: Sequence[Kept]) -> str:
    if len(every) == 1:
        return f"Keeps {units.binary(every[0].step.kept())} for its backward pass."
    small, large = (side(every, key=lambda each: int(each.step.kept())) for side in (min, max))
    said = (f"{units.binary(end.step.kept())} ({end.subject.name})" for end in (small, large))
    return f"Keep from {' to '.join(said)} for the backward pass."


def _several(every: Sequence[Kept]) -> Table:
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


def _facts(one: Kept, as_: str) -> dict[str, Any]:
    """As of a step whose peak is counted, null where nothing is."""
    step, recipe = one.step, one.recipe
    stored = sum(step.pass_.bytes(t.count * t.elements) for t in step.ledger.tensors())
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        "profile": as_,
        "optimizer": recipe.optimizer,
        "checkpoint": recipe.checkpoint,
        "loss": recipe.loss,
        "weights_dtype": recipe.dtype,
        "lora": None,
        "weights_bytes": stored,
        "optimizer_bytes": step.states,
        "gradients_bytes": stored,
        "kept_bytes": step.kept(),
        "peak_bytes": None,
        "peak_instant": None,
        "peak_least_bytes": None,
        "exact": as_ == REFERENCE,
        "mesh": None,
        "sent_bytes": None,
        "whole": None,
        "instants": [],
        "lines": kept_lines(one),
        "fit": None,
    }
