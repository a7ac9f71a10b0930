"""FLOPs of one forward pass, or one training step: product by product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from tfacct.accounts.metrics import Recompute, attention_overtakes
from tfacct.architecture.parts import Projector
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.workload import Request, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Table
from tfacct.reports import cells, compose, conventions, counting, flops_tables, ranks, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.cells import Shown, shown
from tfacct.reports.flops_tables import Counted

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh

By = Literal["line", "part", "block"]
STEP = "A training step is one forward and one backward pass, without the optimizer's update."


def flops(
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    train: bool = False,
    masked: bool = False,
    by: By = "line",
    pointwise: bool = False,
    recompute: Recompute = "none",
    mesh: Mesh | None = None,
) -> Report:
    """FLOPs of the matrix products, 2 per multiply-add, with m × k × n of each. Raises TfacctError.

    `recompute`: the backward pass of a training step runs every block (`full`) or its `attention` again. `mesh`: ranks
    that divide the products; the FLOPs are those of the one that computes most.
    """
    if recompute not in get_args(Recompute):
        raise UsageError(f"{option('recompute')} is full, attention or none, not {recompute!r}")
    if recompute != "none" and not train:
        raise UsageError(
            f"{option('recompute', recompute)} applies to a training step: it needs {option('train', True)}"
        )
    if by not in ("line", "part", "block"):
        raise UsageError(f"{option('by')} is line, part or block, not {by!r}")
    if pointwise and mesh is not None:
        from tfacct.reports.computed import check_elements

        check_elements(mesh)
    if pointwise and (by != "line" or len(subjects) > 1):
        raise UsageError(f"{option('pointwise')} lists lines: use it with one MODEL and with no other {option('by')}")
    if by == "block" and len(subjects) > 1:
        raise UsageError(f"{option('by', 'block')} needs one MODEL: several are compared by part")
    subjects, left_out = counting.steppable(subjects, request)
    counted, unfit = _counted(subjects, request, train, masked, recompute, mesh)
    left_out = [*left_out, *unfit]
    if recompute == "attention" and not any(_again(c) for c in counted):
        raise UsageError(f"{counted[0].subject.name} has no attention that could run again")
    if train and any(c.work.tokens != c.work.context for c in counted):
        raise whole_sequences("train")
    again = {"none": "", "full": " with full recomputation", "attention": " with attention recomputed"}[recompute]
    what = f"training-step FLOPs{again}" if train else "forward FLOPs"
    what += f" of one of {ranks.count(mesh):,} ranks" if mesh else ""
    subjects = [c.subject for c in counted]
    who = f"{compose.name_of(subjects[0])}: {what}" if len(subjects) == 1 else what[0].upper() + what[1:]
    return compose.report(
        "flops",
        subjects,
        _table(counted, by, pointwise),
        [_facts(c, masked, pointwise) for c in counted],
        title=f"{who} {compose.of_workload(subjects, request)}",
        convention=_convention(subjects, request, train, masked, recompute),
        answer=_answer(counted),
        notes=lambda at: _notes(counted[at], request, pointwise, alone=len(counted) == 1),
        counted=conventions.products_counted(request, masked, subjects),
        details=lambda at: _details(counted[at], request, pointwise),
        requests=[request],
        left_out=left_out,
        headline="total_flops",
    )


def _table(counted: Sequence[Counted], by: By, pointwise: bool) -> Table:
    if len(counted) != 1:
        return flops_tables.side_by_side(counted)
    if by == "line":
        return flops_tables.by_line(counted[0], pointwise)
    return (flops_tables.by_part if by == "part" else flops_tables.by_block)(counted[0])


def _count(subject: LoadedModel, request: Request, train: bool, masked: bool, recompute: Recompute) -> Counted:
    work = counting.workload(subject, request)
    products = flops_tables.products_of(subject.ledger, work, masked=masked, recompute=recompute)
    return Counted(subject, work, products, train, masked, recompute)


def _counted(
    subjects: Sequence[LoadedModel],
    request: Request,
    train: bool,
    masked: bool,
    recompute: Recompute,
    mesh: Mesh | None,
) -> tuple[list[Counted], list[counting.LeftOut]]:
    """The products of each model, or of its rank that computes most; and models that the mesh does not fit."""
    if mesh is None:
        return [_count(subject, request, train, masked, recompute) for subject in subjects], []
    from tfacct.reports.computed import computed

    def of(subject: LoadedModel) -> Counted:
        whole = _count(subject, request, train, masked, recompute)
        found = [
            replace(_count(own, request, train, masked, recompute), whole=whole, mesh=mesh, stage=stage)
            for stage, own in ranks.stages_of(ranks.as_one_runs([subject], mesh)[1][0], mesh)
        ]
        return max((computed(each, mesh) for each in found), key=lambda each: each.total)

    _, found, left_out = counting.on_a_mesh(subjects, of)
    return found, left_out


def _again(counted: Counted) -> int:
    """FLOPs of what is run again."""
    from tfacct.accounts.step_flops import recomputed_flops

    if counted.recompute == "none":
        return 0
    only = counted.recompute == "attention"
    return int(recomputed_flops(counted.subject.ledger, counted.work.axes(), masked=counted.masked, attention=only))


def _both_readings(counted: Counted) -> list[str]:
    """FLOPs of a model as it runs, and as they would be if the networks that it stores and never calls ran too."""
    called = counted.if_all_called
    if called in (None, counted.total):
        return []
    idle = ", ".join(paths.short(path) for path in cells.never_called(counted.subject))
    return [
        f"As it runs: {counted.total:,} FLOPs. {idle} is stored but never called (called = false).",
        f"If it were called: {called:,} FLOPs.",
    ]


def _overtaken(counted: Counted, request: Request) -> list[str]:
    """Where attention outgrows the rest, if the context grows and the rest of what is asked stays."""
    chunk = request.decode or request.tokens is not None
    return sentences.overtaken(counted.subject, attention_overtakes(counted.point, chunk=chunk))


def _facts(counted: Counted, masked: bool, pointwise: bool) -> dict[str, Any]:
    facts = {
        "workload": counting.workload_facts(counted.work, masked=masked),
        "train": counted.train,
        "recompute": counted.recompute,
        "recomputed_flops": _again(counted),
        "total_flops": counted.total,
        "flops_per_token": Fraction(counted.total, counted.tokens),
        **_whole(counted),
        "total_params": counted.params,
        "active_params": counted.active_params,
        "rule_of_thumb_flops": counted.rule_of_thumb,
        **latent.facts(counted.subject, counted.point),
        "components": counted.by_component(),
        "lines": [_line_facts(counted, line) for line in shown(counted.products)],
    }
    facts |= {"never_called": cells.never_called(counted.subject), "total_flops_if_called": counted.if_all_called}
    if pointwise:
        facts["pointwise"] = [
            {"path": path, "elements": elements}
            for path, elements in counted.subject.ledger.pointwise(counted.work.axes()).items()
        ]
    return facts


def _whole(counted: Counted) -> dict[str, Any]:
    """The mesh, and the whole model beside one of its ranks."""
    if counted.whole is None or counted.mesh is None:
        return {}
    one = counted.whole
    whole = {"total_flops": one.total, "active_params": one.active_params, "rule_of_thumb_flops": one.rule_of_thumb}
    return {
        **ranks.beside({}, whole, counted.mesh, tuple(whole)),
        **ranks.stage_facts(counted.mesh, counted.stage),
    }


def _line_facts(counted: Counted, line: Shown) -> dict[str, Any]:
    product, dims = line.product, line.product.dims
    facts: dict[str, Any] = {"path": product.path, "spec": product.spec}
    facts |= {"blocks": line.kind} if line.kind else {}
    facts |= {"m": dims.m, "k": dims.k, "n": dims.n, "times": dims.times, "flops": counted.flops(product)}
    if counted.train:
        facts |= {"forward_flops": product.forward, "backward_flops": product.backward}
    return facts


def _convention(
    subjects: Sequence[LoadedModel], request: Request, train: bool, masked: bool, recompute: Recompute
) -> str:
    again = {"none": "", "full": ", and the blocks run again", "attention": ", and attention runs again"}[recompute]
    backward = f"; backward 2 x forward{again}" if train else ""
    return f"{conventions.products_convention(request, masked, subjects)}{backward}"


def _answer(counted: Sequence[Counted]) -> str:
    """The total of one model, or the least and the most of several."""
    if len(counted) > 1:
        least, most = (side(counted, key=lambda c: c.total) for side in (min, max))
        return f"From {units.si(least.total)} ({least.subject.name}) to {units.si(most.total)} ({most.subject.name})."
    (one,) = counted
    if one.whole is not None:
        return f"{units.si(one.total)} FLOPs on one rank; the whole model takes {units.si(one.whole.total)}."
    rule = f"{'6' if one.train else '2'}·{'active' if one.active else 'params'}·tokens"
    times = units.decimals(Fraction(one.total, one.rule_of_thumb), 2)
    each = units.si(round(Fraction(one.total, one.tokens)))
    return f"{units.si(one.total)} FLOPs, {each} per token: {times} times {rule}."


def _details(counted: Sequence[Counted], request: Request, pointwise: bool) -> Iterator[str]:
    """What was counted and what was not, at length."""
    subjects = [c.subject for c in counted]
    yield conventions.products_note(request, counted[0].masked, subjects)
    if not pointwise:
        yield conventions.left_out(subjects)


def _notes(counted: Sequence[Counted], request: Request, pointwise: bool, *, alone: bool) -> Iterator[str]:
    """About some of the models. Not `alone`: others stand beside them, and no crossing is sought for each."""
    subjects, first = [c.subject for c in counted], counted[0]
    if len(counted) == 1:
        yield from _both_readings(first)
    if alone:
        yield from _overtaken(first, request)
    if first.train:
        yield STEP
    if first.recompute != "none":
        what = "every block again, up to the last product that it needs"
        if first.recompute == "attention":
            what = "attention again, all its products but the last"
        more = f": {units.si(_again(first))} FLOPs" if len(counted) == 1 else ""
        yield f"The backward pass runs {what}{more}."
    if pointwise:
        yield "Pointwise work is counted in elements of its results and is in no total."
    if len(counted) > 1:
        yield from sentences.active_notes(subjects)
    undivided = [c.subject if c.whole is None else c.whole.subject for c in counted]
    yield from sentences.block_notes(undivided, masked=first.masked)
    yield from latent.step_notes([(c.subject, c.point) for c in counted])
    yield from sentences.source_notes(subjects, first.work)
    for own in counted:
        if own.subject.architecture.projector is not None:
            part = (own.flops(one) for one in own.products if paths.heading_of(one.path) == Projector.name)
            yield f"{own.subject.name} includes the projector: {units.si(sum(part))} FLOPs."
    if first.mesh is not None:
        yield from ranks.of_work(undivided, first.stage, first.mesh)
