"""The tables of a training step: its instants, what is kept tensor by tensor or part by part, several models."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tfacct.architecture.parts import MIXERS
from tfacct.ledger import paths
from tfacct.ledger.kept import AGAIN, Kept
from tfacct.output.report import Column, Row, Table
from tfacct.reports import cells, compose
from tfacct.reports.train_fit import fits_in
from tfacct.reports.training import Trained

if TYPE_CHECKING:
    from tfacct.reports.budget import Budget


MEMORY = "memory"
"""What an encoder gave."""


def by_part(one: Trained) -> dict[str, int]:
    """Bytes kept, by what keeps them."""
    found: dict[str, int] = {}
    for line in kept_lines(one):
        name = line["part"]
        found[name] = found.get(name, 0) + line["bytes"]
    return found


def kept_lines(one: Trained) -> list[dict[str, Any]]:
    """Every kept tensor, as in the JSON; blocks of several kinds share a line where they keep alike."""
    step = one.step
    found: dict[tuple[Kept, int], dict[str, Any]] = {}
    for section, flying in ((section, flying) for run, flying in step.passes for section in run.sections):
        for line in step.lines_of(section) if flying else ():
            each = line.bytes({**section.axes, **step.at}, step.pass_)
            row = found.setdefault((line, each), _row(line, one.recipe.dtype))
            row["times"] += flying * section.count * line.times
            row["bytes"] += flying * section.count * each
    if step.stage is not None and step.stage.waiting:
        row = _row(Kept("waiting", "", ("gradients of weights",)), one.recipe.dtype)
        found[Kept("waiting", "", ()), 0] = {**row, "times": 1, "bytes": step.stage.waiting}
    return [*found.values()]


DTYPES = {"full": "fp32", "upcast": "fp32", "copy": "fp32", "flag": "bool", "index": "int64", "short": "int32"}
"""Dtype of a kept tensor by its role, where it is not that of the pass."""


def _row(line: Kept, dtype: str) -> dict[str, Any]:
    """A line of a pass in `dtype`; a kernel's seed is two integers of its own."""
    return {
        "path": line.path,
        "part": _part(line.path, [*line.by]),
        "spec": line.spec,
        "role": line.role,
        "dtype": None if line.role == "seed" else DTYPES.get(line.role, dtype),
        "times": 0,
        "bytes": 0,
        "needed_by": list(line.by),
    }


def _part(path: str, needed: list[str]) -> str:
    """Who keeps a tensor: attention, network, norms, the loss, or what stands at the ends."""
    if path.startswith(f"{paths.ENCODER}.") or path == MEMORY:
        return paths.ENCODER
    name, _, leaf = path.removeprefix("blocks.*.").partition(".")
    if leaf.endswith("weight_cast") or name.endswith("weight_cast"):
        return "casts of weights"
    if ("norm" in name and not leaf) or (leaf or name).endswith(".in") or path == "lm_head.in":
        return "inputs of products"
    if needed == [AGAIN]:
        return "inputs of blocks"
    if name in ("attn", "cross", "mlp", "loss", *MIXERS):
        return name
    if name in ("in", "stream") and not any("norm" in operation for operation in needed):
        return "inputs of products"
    return "norms" if "norm" in name or name in ("in", "stream") or name.startswith("mid") else "others"


def timeline(one: Trained) -> Table:
    """Instants of one model's step, with the peak marked."""
    columns = (
        Column("instant", "instant"),
        Column("weights", "weights", "bytes", drop=3),
        Column("states", "moments", "bytes", drop=3, empty="–"),
        Column("gradients", "gradients", "bytes", drop=2, empty="–"),
        *(
            (Column("gathered", "gathered", "bytes", drop=2, empty="–"),)
            if one.step.units is not None and one.step.units.gathers
            else ()
        ),
        Column("kept", "kept", "bytes", drop=1, empty="–"),
        Column("held", "held", "bytes", drop=2, empty="–"),
        Column("total", "total", "bytes"),
        Column("peak", "", drop=6),
    )
    rows: tuple[Row, ...] = tuple(
        {
            "instant": each.name,
            "weights": each.weights,
            "states": each.states or None,
            "gradients": each.gradients or None,
            "kept": each.kept or None,
            "held": each.held or None,
            "gathered": each.gathered or None,
            "total": each.total,
            "peak": "peak" if each is one.peak else None,
        }
        for each in one.instants
    )
    totals: tuple[Row, ...] = (
        {
            "instant": "peak",
            **dict.fromkeys(("weights", "states", "gradients", "gathered", "kept", "held"), ""),
            "total": one.peak.total,
        },
    )
    return columns, (rows,), totals


def instant_facts(one: Trained) -> list[dict[str, Any]]:
    """The instants, as in the JSON."""
    return [
        {
            "instant": each.name,
            "operation": each.operation or None,
            "weights_bytes": each.weights,
            "optimizer_bytes": each.states,
            "gradients_bytes": each.gradients,
            "kept_bytes": each.kept,
            "held_bytes": each.held,
            "gathered_bytes": each.gathered,
            "total_bytes": each.total,
            "exact": one.measured and not (each is one.instants[-1] and one.step.unsure),
        }
        for each in one.instants
    ]


def tensors(one: Trained) -> Table:
    """Every kept tensor."""
    columns = (
        Column("path", "tensor"),
        Column("spec", "axes", "spec", drop=2),
        Column("dtype", "dtype", drop=3),
        Column("times", "times", "count", drop=1),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share"),
        Column("needed_by", "needed by", drop=4),
    )
    whole = int(one.step.kept())
    rows: list[Row] = [
        {
            "path": paths.short(line["path"]),
            "spec": line["spec"],
            "dtype": line["dtype"] or "",
            "times": line["times"],
            "bytes": line["bytes"],
            "share": Fraction(line["bytes"], whole),
            "needed_by": ", ".join(paths.short(name) for name in line["needed_by"]),
        }
        for line in kept_lines(one)
    ]
    totals: tuple[Row, ...] = ({"path": "kept", "bytes": whole, "share": Fraction(1)},)
    return columns, (tuple(rows),), totals


def parts(one: Trained) -> Table:
    """What is kept, by the part that keeps it."""
    columns = (
        Column("part", "part"),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    whole = int(one.step.kept())
    rows = tuple(cells.with_share({"part": part, "bytes": taken}, taken, whole) for part, taken in by_part(one).items())
    return columns, (rows,), ({"part": "kept", "bytes": whole, "share": Fraction(1)},)


def several(every: Sequence[Trained], fit: Budget | None) -> Table:
    """One row for each model: what decides, and at which instant."""
    unsure = any(not each.exact for each in every)
    columns = (
        Column("model", "model"),
        Column("context", "context", "count", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=2),
        Column("optimizer_bytes", "moments", "bytes", drop=4),
        Column("kept_bytes", "kept", "bytes", drop=1),
        *((Column("unsure", ""),) if unsure else ()),
        Column("peak_bytes", "peak", "bytes"),
        Column("peak_instant", "at", drop=5),
        *((Column("fits", ""),) if fit is not None else ()),
    )
    rows: list[Row] = []
    for each in every:
        fitting = fit is not None and fits_in(each, fit)
        rows.append(
            {
                "model": compose.name_of(each.subject),
                "context": each.work.context,
                "weights_bytes": each.peak.weights,
                "optimizer_bytes": each.step.states,
                "kept_bytes": each.step.kept(),
                **({"unsure": None if each.exact else "≈"} if unsure else {}),
                "peak_bytes": each.peak.total,
                "peak_instant": each.peak.name,
                "fits": "fits" if fitting else None,
            }
        )
    return columns, (tuple(rows),), ()
