"""Bytes that the products of a pass read and write, and FLOPs per byte: the traffic of unfused kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfacct.accounts.metrics import Point
from tfacct.base import units
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.evaluated import Product
from tfacct.ledger.storage import Storage, width
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Column, Report, Row, Table
from tfacct.reports import cells, compose, conventions, counting, ranks, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.cells import Shown, shown
from tfacct.reports.sentences import storage_notes

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh

CONVENTION = "every operand of a product read once, every result written once, each rounded up to whole bytes"


@record
class _Counted:
    """One model's products at one workload, with what each moves. `whole`: those of the whole model, where the ranks of
    a `mesh` divide it and these are of one, of this `stage`."""

    subject: LoadedModel
    work: Workload
    how: Storage
    lines: list[tuple[Shown, Cost]]
    whole: _Counted | None = None
    mesh: Mesh | None = None
    stage: int = 1

    @property
    def total(self) -> Cost:
        return sum((cost for _, cost in self.lines), Cost())


def _cells(cost: Cost) -> dict[str, Any]:
    """As a row, and as the JSON. What moves nothing has no FLOPs per byte."""
    each = cost.intensity if cost.moved else None
    return {"flops": cost.flops, "read_bytes": cost.read, "written_bytes": cost.written, "flops_per_byte": each}


def traffic(
    subjects: Sequence[LoadedModel], request: Request, *, dtype: str | None = None, mesh: Mesh | None = None
) -> Report:
    """Bytes that each product of a forward pass reads and writes, and its FLOPs per byte. Raises TfacctError.

    Weights are stored in `dtype`; activations, cached keys and values among them, as `memory` keeps the cache. `mesh`:
    ranks that divide the products; the bytes are those of the one that moves most.
    """
    _, kept = counting.dtypes(dtype)
    subjects, left_out = counting.with_known_bytes(subjects, dtype)
    subjects, stepless = counting.steppable(subjects, request)
    stored = counting.stored_name(subjects, dtype)
    counted, unfit = _counted(subjects, request, dtype, kept, mesh)
    subjects = [c.subject for c in counted]
    table = _by_line(counted[0]) if len(counted) == 1 else _side_by_side(counted)
    who = f"{compose.name_of(subjects[0])}: bytes" if len(subjects) == 1 else "Bytes"
    what = f"in {counting.formats(subjects, dtype)}"
    moved = f"moved on one of {ranks.count(mesh):,} ranks" if mesh else "moved"
    return compose.report(
        "flops",
        subjects,
        table,
        [_facts(c, kept) | counting.format_facts(c.subject, dtype) for c in counted],
        title=f"{who} {moved} {what}{compose.of_workload(subjects, request, of=' by ', at=', ')}",
        answer=_answer(counted),
        notes=lambda at: _notes(counted[at], dtype, stored, kept),
        counted=f"{conventions.products_counted(request, False, subjects)}; unfused kernels",
        details=lambda at: _details(counted[at], request),
        requests=[request],
        left_out=[*left_out, *stepless, *unfit],
        convention=f"{CONVENTION}; {conventions.products_convention(request, False, subjects)}",
        headline="total_moved_bytes",
        record="flops-bytes",
    )


def _answer(counted: Sequence[_Counted]) -> str:
    """The bytes of one model, and its FLOPs for each; or the least and the most of several."""
    if len(counted) > 1:
        least, most = (side(counted, key=lambda c: c.total.moved) for side in (min, max))
        small, large = (f"{units.binary(c.total.moved)} ({c.subject.name})" for c in (least, most))
        return f"From {small} to {large}."
    total = counted[0].total
    each = f": {units.decimals(total.intensity, 2)} FLOPs per byte" if total.moved else ""
    on_rank = " on one rank" if counted[0].whole else ""
    return f"{units.binary(total.moved)} moved for {units.si(total.flops)} FLOPs{on_rank}{each}."


def _details(counted: Sequence[_Counted], request: Request) -> list[str]:
    subjects = [c.subject for c in counted]
    return [
        conventions.products_note(request, False, subjects),
        *_unfused(subjects),
        "FLOP/B: FLOPs per byte, read and written.",
        conventions.left_out(subjects, "biases"),
    ]


def _notes(counted: Sequence[_Counted], dtype: str | None, stored: str, kept: str) -> list[str]:
    subjects = [c.subject for c in counted]
    undivided = [c.subject if c.whole is None else c.whole.subject for c in counted]
    return [
        *sentences.files_notes(undivided, dtype),
        *([] if stored == kept else [f"Weights in {stored}; {_activations(subjects)} in {kept}."]),
        *storage_notes(subjects, dtype),
        *([_touched(counted[0].mesh)] if _routed(subjects) else []),
        *sentences.block_notes(undivided),
        *latent.step_notes([(c.subject, Point(c.subject.ledger, c.work)) for c in counted]),
        *(ranks.of_work(undivided, counted[0].stage, counted[0].mesh) if counted[0].mesh else ()),
    ]


def _touched(mesh: Mesh | None) -> str:
    """Which experts a step reads."""
    if mesh is None or mesh.ep == 1:
        return "Expert weights: those of min(E, B·T·A) experts, as many as a step can touch."
    pairs = "B·T·A" if mesh.tp == 1 else f"B·T·A / {mesh.tp:,}"
    return (
        f"Expert weights: those of min(E / {mesh.ep:,}, {pairs}) experts, as many as the rows that come to a rank can"
        " touch. Each row is read by itself."
    )


def _unfused(subjects: Sequence[LoadedModel]) -> list[str]:
    """Note on the bytes that unfused kernels move, and those of them that fused ones do not."""
    said = "The traffic of unfused kernels: every operand is read once and every result written once"
    if sentences.attends(subjects):
        said += "; keys and values once for all the query heads that share them. Fused attention never moves the T × S"
        said += " scores"
    return [f"{said}.", *dict.fromkeys(mixer.unfused for mixer in sentences.mixers(subjects) if mixer.unfused)]


def _activations(subjects: Sequence[LoadedModel]) -> str:
    return "activations, keys and values" if sentences.attends(subjects) else "activations and states"


def _routed(subjects: Sequence[LoadedModel]) -> bool:
    return any("E" in group.axes for subject in subjects for group in subject.ledger.groups)


def _counted(
    subjects: Sequence[LoadedModel], request: Request, dtype: str | None, kept: str, mesh: Mesh | None
) -> tuple[list[_Counted], list[counting.LeftOut]]:
    """What each model moves, or its rank that moves most; and models that the mesh does not fit."""
    if mesh is None:
        return [_count(subject, request, subject.storage(dtype), kept) for subject in subjects], []
    from tfacct.reports.computed import on_rank

    def of(subject: LoadedModel) -> _Counted:
        whole = _count(subject, request, subject.storage(dtype), kept)

        def run(own: LoadedModel) -> _Counted:
            return _count(own, request, own.storage(dtype), kept, lambda made: on_rank(own, made, mesh, whole.work))

        (ranked,) = ranks.as_one_of([subject], mesh, dtype)[1]
        found = [replace(run(own), whole=whole, mesh=mesh, stage=stage) for stage, own in ranks.stages_of(ranked, mesh)]
        return max(found, key=lambda each: each.total.moved)

    _, found, left_out = counting.on_a_mesh(subjects, of)
    return found, left_out


def _count(
    subject: LoadedModel,
    request: Request,
    how: Storage,
    kept: str,
    run: Callable[[list[Product]], list[Product]] = list,
) -> _Counted:
    work = counting.workload(subject, request)
    products = shown(run(subject.ledger.products(work.axes())))
    return _Counted(subject, work, how, [(line, line.product.cost(how, width(kept))) for line in products])


def _facts(counted: _Counted, kept: str) -> dict[str, Any]:
    total = counted.total
    return {
        "workload": counting.workload_facts(counted.work, dtype=counted.how.name),
        "activation_dtype": kept,
        "total_flops": total.flops,
        "total_read_bytes": total.read,
        "total_written_bytes": total.written,
        "total_moved_bytes": total.moved,
        **_whole(counted),
        "flops_per_byte": _cells(total)["flops_per_byte"],
        **latent.facts(counted.subject, Point(counted.subject.ledger, counted.work)),
        "lines": [
            {
                "path": line.product.path,
                "spec": line.product.spec,
                **({"blocks": line.kind} if line.kind else {}),
                **_cells(cost),
            }
            for line, cost in counted.lines
        ],
    }


def _whole(counted: _Counted) -> dict[str, Any]:
    """The mesh, and of the whole model what stands beside one rank's."""
    if counted.whole is None or counted.mesh is None:
        return {}
    total = counted.whole.total
    whole = {"total_flops": total.flops, "total_moved_bytes": total.moved}
    return {**ranks.beside({}, whole, counted.mesh, tuple(whole)), **ranks.stage_facts(counted.mesh, counted.stage)}


def _by_line(counted: _Counted) -> Table:
    columns = (
        Column("operation", "operation"),
        Column("spec", "einsum", "spec", drop=6),
        Column("flops", "FLOPs", "flops", drop=1),
        Column("read_bytes", "read", "bytes"),
        Column("written_bytes", "written", "bytes"),
        Column("flops_per_byte", "FLOP/B", "ratio", empty="–"),
        Column("share", "of bytes", "share", drop=2),
        Column("bar", "", "bar", drop=5),
    )
    total = counted.total
    rows: list[Row] = []
    for line, cost in counted.lines:
        row: dict[str, Any] = {
            "part": paths.heading_of(line.product.path),
            "operation": line.operation,
            "spec": line.product.spec,
            **_cells(cost),
        }
        rows.append(cells.with_share(row, cost.moved, total.moved))
    sections = tuple(tuple(section) for _, section in groupby(rows, key=lambda row: row["part"]))
    totals: list[Row] = [{"operation": "total", **_cells(total), "share": Fraction(1)}]
    if counted.whole is not None:
        totals.append({"operation": "whole model", **_cells(counted.whole.total), PLAIN: 1})
    return columns, sections, tuple(totals)


def _side_by_side(counted: Sequence[_Counted]) -> Table:
    """One row per model."""
    columns = (
        Column("model", "model"),
        Column("keys", "context", "count"),
        Column("flops", "FLOPs", "flops", drop=1),
        Column("read_bytes", "read", "bytes"),
        Column("written_bytes", "written", "bytes"),
        Column("flops_per_byte", "FLOP/B", "ratio"),
        *((Column("whole", "whole model", "bytes"),) if counted[0].whole is not None else ()),
    )
    rows = tuple(
        {"model": compose.name_of(c.subject), "keys": c.work.context, **_cells(c.total)}
        | {"whole": c.whole and c.whole.total.moved}
        for c in counted
    )
    return columns, (rows,), ()
