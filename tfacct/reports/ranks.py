"""What one of several ranks holds, beside the whole: for reports of a model that is not divided otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.loading.model import LoadedModel
from tfacct.reports.counting import LeftOut, on_a_mesh

if TYPE_CHECKING:
    from tfacct.accounts.sharding.mesh import Mesh, Method, Plan, Schedule
    from tfacct.output.chart import Chart

Budget = TypeVar("Budget", int | str | None, str | None)
SHARES = "A rank has its share of heads, networks and vocabulary; the rest is whole on each."


def mesh_of(
    tp: int = 1,
    sp: bool = False,
    fsdp: int = 1,
    plan: Plan = "torch",
    ep: int = 1,
    imbalance: float = 1,
    dp: int = 1,
    zero: int = 0,
    pp: int = 1,
    schedule: Schedule = "1f1b",
    microbatches: int | None = None,
    pp_chunks: int = 1,
    cp: int = 1,
    cp_method: Method = "ring",
    ulysses: int = 1,
) -> Mesh | None:
    """The mesh of these options; None where none divides anything. Raises UsageError."""
    from tfacct.accounts.sharding.mesh import Mesh

    alone(tp=tp, fsdp=fsdp, ep=ep, dp=dp, pp=pp, pp_chunks=pp_chunks, cp=cp, ulysses=ulysses)
    if microbatches is not None:
        alone(microbatches=microbatches)
    if not isinstance(zero, int) or isinstance(zero, bool):
        raise UsageError(f"{option('zero')} is 1, 2 or 3, not {zero!r}")
    if not isinstance(sp, bool):
        raise UsageError(f"{option('sp')} is True or False, not {sp!r}")
    number = isinstance(imbalance, int | float | Fraction) and not isinstance(imbalance, bool)
    if not number or not float("-inf") < imbalance < float("inf"):
        raise UsageError(f"{option('imbalance')} must be a number, not {imbalance!r}")
    mesh = Mesh(
        tp,
        sp,
        fsdp,
        plan,
        ep,
        Fraction(str(imbalance)),
        dp,
        zero,
        pp,
        schedule,
        microbatches if microbatches is not None else 0,
        pp_chunks,
        cp,
        cp_method,
        ulysses,
    )
    return None if mesh == Mesh() else mesh


def alone(**sizes: int) -> bool:
    """True if all of these axes of a mesh have one rank. Raises UsageError for what is no number of ranks."""
    from tfacct.ledger.workload import check_size

    for name, size in sizes.items():
        check_size(option(name), size)
    return all(size == 1 for size in sizes.values())


def as_one_has_them(subjects: Sequence[LoadedModel], tp: int, dtype: str | None, ep: int = 1) -> Sequence[LoadedModel]:
    """The models as one rank has them; themselves where there is one."""
    if (tp, ep) == (1, 1):
        return subjects
    from tfacct.reports import mesh

    ranked = mesh.on_ranks(subjects, tp, ep)
    for whole, one in zip(subjects, ranked, strict=True):
        mesh.check_formats(whole, one, dtype)
    return ranked


def as_one_of(
    subjects: Sequence[LoadedModel], tp: int, dtype: str | None, pp: int = 1, ep: int = 1
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[LeftOut]]:
    """The models that `tp` ranks in each of `pp` stages divide, or of whose experts `ep` have parts, as they are and as
    one rank of the stages together has them, and the others. Raises TfacctError where there is none."""
    if alone(tp=tp, pp=pp, ep=ep):
        return subjects, subjects, []
    if pp > 1 and ep > 1:
        raise UsageError(f"{option('ep')} is not counted beside {option('pp')}", "leave one of the two out")
    return on_a_mesh(subjects, lambda subject: as_one_has_them([staged(subject, pp)], tp, dtype, ep)[0])


def as_one_runs(
    subjects: Sequence[LoadedModel], tp: int, pp: int = 1
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[LeftOut]]:
    """The same for what does not depend on how weights are stored."""
    if alone(tp=tp, pp=pp):
        return subjects, subjects, []
    from tfacct.reports import mesh

    return on_a_mesh(subjects, lambda subject: mesh.on_ranks([staged(subject, pp)], tp)[0])


def staged(subject: LoadedModel, pp: int) -> LoadedModel:
    """The same model. Raises TfacctError if it has no such stages."""
    if pp != 1:
        from tfacct.accounts.sharding.mesh import Mesh
        from tfacct.reports.pipes import check_axes, checked_axes

        check_axes(subject, checked_axes(Mesh(pp=pp)))
    return subject


def stages_of(subject: LoadedModel, pp: int) -> list[tuple[int, LoadedModel]]:
    """The model as ranks of its stages have it, one of each sort, with the stage's number."""
    if pp == 1:
        return [(1, subject)]
    from tfacct.accounts.sharding.mesh import Mesh
    from tfacct.reports.pipes import as_stages

    return as_stages(subject, Mesh(pp=pp))


def shared(undivided: Sequence[LoadedModel], tp: int) -> list[str]:
    """What is said of one rank's share of these models."""
    if not undivided:
        return []
    from tfacct.accounts.sharding.mesh import Mesh
    from tfacct.reports.mesh import uneven

    return [SHARES, *uneven(undivided, Mesh(tp))]


def drawn(chart: Chart, tp: int) -> Chart:
    """The picture of one rank, whose title says so."""
    return chart if tp == 1 else replace(chart, title=f"{chart.title} (one of {tp:,} ranks)")


HELD = ("total_params", "weights_bytes", "kv_cache_bytes", "total_bytes")
"""What of the whole model stands beside what one rank holds."""


def fitting_all(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What fits every stage, of what fits each."""
    least = dict(found[0])
    for what in ("context", "batch"):
        largest, slack = f"largest_{what}", f"{what}_slack_bytes"

        def place(one: dict[str, Any], largest: str = largest, slack: str = slack) -> tuple[int, int]:
            if one[largest] is None:  # nothing fits, or anything does
                return (0, 0) if one[slack] is None else (2, one[slack])
            return 1, one[largest]

        fewest = min(found, key=place)
        least |= {key: fewest[key] for key in (largest, slack)}
    return least


def beside(fact: dict[str, Any], whole: dict[str, Any], tp: int, keys: Sequence[str] = HELD) -> dict[str, Any]:
    """Facts of one rank, with those of the whole model."""
    return {**fact, "tp": tp, "whole": {key: whole[key] for key in keys}}


def of_experts(subjects: Sequence[LoadedModel], tp: int, ep: int) -> list[str]:
    """What is said of experts that ranks divide."""
    if ep == 1:
        return []
    said = f"A rank has 1 of {ep:,} parts of the experts, each of which is whole"
    if len(subjects) == 1:
        axes = next(group.axes for group in subjects[0].ledger.groups if "E" in group.axes)
        said = f"A rank has {axes['E'] // ep:,} of {axes['E']:,} experts, each of which is whole"
    rest = "" if tp > 1 else "; the rest is whole on each"
    return [f"{said}{rest}. {_batches(tp, ep)}".strip()]


def _batches(tp: int, ep: int) -> str:
    if ep == tp:
        return "The ranks share a batch."
    return "Each rank has a batch of its own." if tp == 1 else f"Each {tp:,} of the ranks have a batch of their own."


def notes(
    subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], tp: int, pp: int = 1, ep: int = 1
) -> list[str]:
    """What is said of one rank, and of the whole model where there is one."""
    said = [*(shared(subjects, tp) if tp > 1 else []), *of_stage(subjects, facts, pp), *of_experts(subjects, tp, ep)]
    if len(facts) > 1:
        return said
    whole, batch = facts[0]["whole"], facts[0]["workload"]["batch"]
    total, weights, cache = (units.binary(whole[f"{what}_bytes"]) for what in ("total", "weights", "kv_cache"))
    one = subjects[0]
    sizes = (
        f"{total}, {weights} of weights and {cache} of {one.kept.removeprefix('KV ')}"
        if one.keeps
        else f"{weights} of weights"
    )
    return [f"The whole model at batch {batch:,}: {sizes}.", *said]


def of_stage(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], pp: int) -> list[str]:
    """Which stage is shown, of one model."""
    if pp == 1 or len(subjects) != 1:
        return []
    from tfacct.accounts.sharding.mesh import Mesh
    from tfacct.reports.pipes import division

    return [f"{division(subjects[0].ledger, Mesh(pp=pp))} Shown is stage {facts[0]['stage']:,}, which holds most."]


def on_the_way(metrics: str, tp: bool) -> list[str]:
    """What is said of peaks among ranks of tp."""
    if not tp or "peak" not in metrics:
        return []
    return ["A peak holds what collectives of tp do on the way where that was measured: `tfacct train` says so."]


def of_one(fit: Budget, tp: int) -> Budget:
    """A budget of one rank: of `2xh100-sxm` among two ranks, one card. Raises UsageError for another number of cards
    than ranks."""
    found = re.fullmatch(r"(\d+)\s*x\s*(.+)", fit) if isinstance(fit, str) and tp > 1 else None
    if found is None:
        return fit
    cards, card = found.groups()
    if int(cards) != tp:
        raise UsageError(f"{fit} are not {tp:,} cards, one for each rank", f"{option('fit', card)} is of one")
    return card
