"""Bytes of a training step: its instants, the one that decides, and what would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.counting import LeftOut
from tfacct.reports.train_fit import budgeted, levers
from tfacct.reports.training import Recipe, Trained, refusal, trained

CONVENTION = "every tensor that autograd keeps or makes; no allocator rounding, kernel workspace or device context"


def train(subjects: Sequence[LoadedModel], request: Request, recipe: Recipe, *, fit: int | None = None) -> Report:
    """Bytes of a training step as the transformers classes run it. `fit`: a budget in bytes. Raises UsageError."""
    recipe = recipe.checked()
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    subjects, left_out = _trainable(subjects, recipe)
    every = [trained(subject, counting.workload(subject, request), recipe) for subject in subjects]
    one = every[0] if len(every) == 1 else None
    fits = None if one is None or fit is None else budgeted(one, fit)
    table = _several(every, fit) if one is None else levers(fits) if fits and fits["changes"] else _timeline(one)
    who = "Training steps" if one is None else f"{compose.name_of(subjects[0])}: a training step"
    recomputed = ", blocks run again" if recipe.checkpoint == "full" else ""
    return compose.report(
        "train",
        subjects,
        table,
        [_facts(each, fits) for each in every],
        title=f"{who} in {recipe.dtype}, {compose.workload_words(subjects, request)}, {recipe.optimizer}{recomputed}",
        answer=_answer(every, fits, fit),
        convention=f"as transformers runs it with {recipe.attention}: {CONVENTION}",
        notes=lambda at: _notes(every[at]),
        counted=f"as transformers 5 with {recipe.attention}: every tensor that autograd keeps or makes",
        details=lambda _: _DETAILS,
        requests=[request],
        left_out=left_out,
        headline="peak_bytes",
    )


_DETAILS = (
    "Exact for what autograd keeps and makes. Left out: the allocator's rounding and fragmentation, what kernels use"
    " inside themselves, the device's context.",
    "Weights, gradients and moments are in the dtype of the pass. The labels are the tokens; the logits are dropped"
    " once there is a loss.",
)


def _trainable(subjects: Sequence[LoadedModel], recipe: Recipe) -> tuple[list[LoadedModel], list[LeftOut]]:
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
    return able, LeftOut.of(others, "their training step is not counted here, and each says why by itself")


def _answer(every: Sequence[Trained], fits: dict[str, Any] | None, fit: int | None) -> str:
    if len(every) > 1:
        if fit is not None:
            fitting = sum(each.peak.total <= fit for each in every)
            return f"{fitting:,} of {len(every):,} models fit in {units.budget(fit)} at the context shown."
        ends = (side(every, key=lambda each: each.peak.total) for side in (min, max))
        small, large = (f"{units.binary(end.peak.total)} ({end.subject.name})" for end in ends)
        return f"Needs from {small} to {large} at the peak."
    (one,) = every
    needs = f"{units.binary(one.peak.total)} at its peak ({one.peak.name})"
    if fits is None or fit is None:
        return f"Needs {needs}."
    size, longest = units.budget(fit), fits["largest_context"]
    most = "not even one token fits" if longest is None else f"{longest:,} tokens fit"
    at_most = f"{most} at batch {one.work.batch:,}"
    if one.peak.total <= fit:
        return f"Fits in {size}: needs {needs}; {at_most}, or {fits['largest_batch']:,} sequences."
    return f"Does not fit in {size}: needs {needs}; {at_most}."


def _notes(every: Sequence[Trained]) -> list[str]:
    if len(every) != 1:
        return []
    (one,) = every
    parts = sorted(_by_part(one).items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {units.binary(taken)}" for name, taken in parts if taken)
    return [f"Kept for the backward pass: {units.binary(one.step.kept())} ({named})."]


def _by_part(one: Trained) -> dict[str, int]:
    """Bytes kept, by what keeps them."""
    found: dict[str, int] = {}
    for line in _kept(one):
        name = line["part"]
        found[name] = found.get(name, 0) + line["bytes"]
    return found


def _kept(one: Trained) -> list[dict[str, Any]]:
    """Every kept tensor, as in the JSON."""
    step = one.step
    return [
        {
            "path": line.path,
            "part": _part(line.path),
            "spec": line.spec,
            "role": line.role,
            "times": section.count * line.times,
            "bytes": section.count * line.bytes({**section.axes, **step.at}, step.pass_),
            "needed_by": list(line.by),
        }
        for section in step.run.sections
        for line in step.lines_of(section)
    ]


def _part(path: str) -> str:
    """Who keeps a tensor: attention, network, norms, the loss, or what stands at the ends."""
    name = path.removeprefix("blocks.*.").partition(".")[0]
    if name in ("attn", "mlp", "loss"):
        return name
    return "norms" if "norm" in name or name in ("in", "stream") or name.startswith("mid") else "others"


def _facts(one: Trained, fits: dict[str, Any] | None) -> dict[str, Any]:
    step, recipe = one.step, one.recipe
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        "profile": f"transformers, {recipe.attention}",
        "optimizer": recipe.optimizer,
        "checkpoint": recipe.checkpoint,
        "weights_bytes": sum(step.pass_.bytes(t.count * t.elements) for t in step.ledger.tensors()),
        "optimizer_bytes": step.states,
        "gradients_bytes": one.instants[-1].gradients,
        "kept_bytes": step.kept(),
        "peak_bytes": one.peak.total,
        "peak_instant": one.peak.name,
        "exact": True,
        "instants": [
            {
                "instant": each.name,
                "operation": each.operation or None,
                "weights_bytes": each.weights,
                "optimizer_bytes": each.states,
                "gradients_bytes": each.gradients,
                "kept_bytes": each.kept,
                "held_bytes": each.held,
                "total_bytes": each.total,
            }
            for each in one.instants
        ],
        "lines": _kept(one),
        "fit": fits,
    }


def _timeline(one: Trained) -> Table:
    columns = (
        Column("instant", "instant"),
        Column("weights", "weights", "bytes", drop=3),
        Column("states", "moments", "bytes", drop=3, empty="–"),
        Column("gradients", "gradients", "bytes", drop=2, empty="–"),
        Column("kept", "kept", "bytes", drop=1, empty="–"),
        Column("held", "held", "bytes", drop=2, empty="–"),
        Column("total", "total", "bytes"),
        Column("peak", ""),
    )
    rows: tuple[Row, ...] = tuple(
        {
            "instant": each.name,
            "weights": each.weights,
            "states": each.states or None,
            "gradients": each.gradients or None,
            "kept": each.kept or None,
            "held": each.held or None,
            "total": each.total,
            "peak": "peak" if each is one.peak else None,
        }
        for each in one.instants
    )
    totals: tuple[Row, ...] = (
        {
            "instant": "peak",
            **dict.fromkeys(("weights", "states", "gradients", "kept", "held"), ""),
            "total": one.peak.total,
        },
    )
    return columns, (rows,), totals


def _several(every: Sequence[Trained], fit: int | None) -> Table:
    columns = (
        Column("model", "model"),
        Column("context", "context", "count", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=2),
        Column("optimizer_bytes", "moments", "bytes", drop=4),
        Column("kept_bytes", "kept", "bytes", drop=1),
        Column("peak_bytes", "peak", "bytes"),
        Column("peak_instant", "at", drop=5),
        *((Column("fits", ""),) if fit is not None else ()),
    )
    rows: list[Row] = []
    for each in every:
        fitting = fit is not None and each.peak.total <= fit
        rows.append(
            {
                "model": compose.name_of(each.subject),
                "context": each.work.context,
                "weights_bytes": each.peak.weights,
                "optimizer_bytes": each.step.states,
                "kept_bytes": each.step.kept(),
                "peak_bytes": each.peak.total,
                "peak_instant": each.peak.name,
                "fits": "fits" if fitting else None,
            }
        )
    return columns, (tuple(rows),), ()
