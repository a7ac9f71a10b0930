"""Bytes that the products of a pass read and write, and FLOPs per byte: the traffic of unfused kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from tfacct import units
from tfacct.architecture import part_of
from tfacct.report import Column, Report, Row, Table
from tfacct.reports import _common as common
from tfacct.reports import _kinds as kinds
from tfacct.reports._lines import Shown, shown
from tfacct.subject import Subject
from tfacct.workload import Request, Workload

CONVENTION = "every operand of a product read once, every result written once, each rounded up to whole bytes"


@dataclass(frozen=True, slots=True)
class _Moved:
    """FLOPs, and bytes read and written: of one line, or of several together."""

    flops: int
    read: int
    written: int

    @property
    def moved(self) -> int:
        return self.read + self.written

    @property
    def intensity(self) -> Fraction | None:
        """FLOPs per byte moved."""
        return Fraction(self.flops, self.moved) if self.moved else None

    @property
    def cells(self) -> dict[str, Any]:
        """As a row, and as the JSON."""
        return {
            "flops": self.flops,
            "read_bytes": self.read,
            "written_bytes": self.written,
            "flops_per_byte": self.intensity,
        }


@dataclass(frozen=True, slots=True)
class _Counted:
    """One model's products at one workload, with what each moves."""

    subject: Subject
    work: Workload
    lines: list[tuple[Shown, _Moved]]

    @property
    def total(self) -> _Moved:
        return _together(moved for _, moved in self.lines)


def _together(lines: Iterable[_Moved]) -> _Moved:
    lines = list(lines)
    return _Moved(
        sum(line.flops for line in lines), sum(line.read for line in lines), sum(line.written for line in lines)
    )


def traffic(subjects: Sequence[Subject], request: Request, *, dtype: str | None = None) -> Report:
    """Bytes that each product of a forward pass reads and writes, and its FLOPs per byte. Raises TfacctError.

    Weights are stored in `dtype`; activations, cached keys and values among them, as `memory` keeps the cache.
    """
    stored, kept = common.dtypes(dtype)
    subjects, left_out = common.with_known_bytes(subjects, dtype)
    subjects, stepless = common.steppable(subjects, request)
    counted = [_count(subject, request, stored, kept) for subject in subjects]
    columns, sections, totals = _by_line(counted[0]) if len(counted) == 1 else _side_by_side(counted)
    who = f"{common.name_of(subjects[0])}: bytes" if len(subjects) == 1 else "Bytes"
    return Report(
        command="flops",
        title=f"{who} moved in {stored}, {common.workload_words(subjects, request)}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            common.products_note(request, False, subjects),
            *_unfused(subjects),
            *([] if stored == kept else [f"Weights in {stored}; {_activations(subjects)} in {kept}."]),
            "FLOP/B: FLOPs per byte, read and written.",
            kinds.left_out(subjects, "biases"),
            *(["Of experts, the weights of as many as a step can touch: min(E, B·T·A)."] if _routed(subjects) else []),
            *common.block_notes(subjects),
            *common.defaulted_notes(subjects),
        ),
        hints=(*common.context_hints(subjects, request), *common.unknown_hints(subjects), *left_out, *stepless),
        models=tuple(_facts(c, stored, kept) for c in counted),
        convention=f"{CONVENTION}; {common.products_convention(request, False, subjects)}",
        headline="total_moved_bytes",
    )


def _unfused(subjects: Sequence[Subject]) -> list[str]:
    """What unfused kernels move, and which of it fused ones do not."""
    said = "The traffic of unfused kernels: every operand is read once and every result written once"
    if kinds.attends(subjects):
        said += "; keys and values once for all the query heads that share them. Fused attention never moves the T × S"
        said += " scores"
    mixers = (
        "A mixer's states are written for every token, and its convolution reads a window for each: fused kernels do"
        " neither."
    )
    return [f"{said}.", *([mixers] if kinds.mixes(subjects) else [])]


def _activations(subjects: Sequence[Subject]) -> str:
    return "activations, keys and values" if kinds.attends(subjects) else "activations and states"


def _routed(subjects: Sequence[Subject]) -> bool:
    return any("E" in group.axes for subject in subjects for group in subject.ledger.groups)


def _count(subject: Subject, request: Request, stored: str, kept: str) -> _Counted:
    work = common.workload(subject, request)
    lines = []
    for line in shown(subject.ledger.products(work.axes())):
        left, right, result = line.product.moved(units.dtype_bits(stored), units.dtype_bits(kept))
        lines.append((line, _Moved(line.product.forward, left + right, result)))
    return _Counted(subject, work, lines)


def _facts(counted: _Counted, stored: str, kept: str) -> dict[str, Any]:
    total = counted.total
    return {
        **common.model_facts(counted.subject),
        "workload": common.workload_facts(counted.work, dtype=stored),
        "activation_dtype": kept,
        "total_flops": total.flops,
        "total_read_bytes": total.read,
        "total_written_bytes": total.written,
        "total_moved_bytes": total.moved,
        "flops_per_byte": total.intensity,
        "lines": [
            {
                "path": line.product.path,
                "spec": line.product.line.spec,
                **({"blocks": line.kind} if line.kind else {}),
                **moved.cells,
            }
            for line, moved in counted.lines
        ],
    }


def _by_line(counted: _Counted) -> Table:
    columns = (
        Column("operation", "operation"),
        Column("spec", "einsum", "spec", drop=6),
        Column("flops", "FLOPs", "flops"),
        Column("read_bytes", "read", "bytes"),
        Column("written_bytes", "written", "bytes"),
        Column("flops_per_byte", "FLOP/B", "ratio", empty="–"),
        Column("share", "of bytes", "share"),
        Column("bar", "", "bar", drop=5),
    )
    total = counted.total
    rows: list[Row] = []
    for line, moved in counted.lines:
        row: dict[str, Any] = {
            "part": part_of(line.product.path),
            "operation": line.operation,
            "spec": line.product.line.spec,
            **moved.cells,
        }
        rows.append(common.with_share(row, moved.moved, total.moved))
    sections = tuple(tuple(section) for _, section in groupby(rows, key=lambda row: row["part"]))
    return columns, sections, ({"operation": "total", **total.cells, "share": Fraction(1)},)


def _side_by_side(counted: Sequence[_Counted]) -> Table:
    """One row per model."""
    columns = (
        Column("model", "model"),
        Column("keys", "context", "count"),
        Column("flops", "FLOPs", "flops"),
        Column("read_bytes", "read", "bytes"),
        Column("written_bytes", "written", "bytes"),
        Column("flops_per_byte", "FLOP/B", "ratio"),
    )
    rows = tuple({"model": common.name_of(c.subject), "keys": c.work.context, **c.total.cells} for c in counted)
    return columns, (rows,), ()
