"""What one of several ranks holds, beside the whole: for reports of a model that is not divided otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import letters
from tfacct.ledger.lines import WINDOW, State
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.counting import LeftOut, on_a_mesh
from tfacct.reports.one_rank import on_ranks

if TYPE_CHECKING:
    from tfacct.output.chart import Chart
    from tfacct.parallel.mesh import Mesh, Method, Plan, Schedule
    from tfacct.reports.budget import Budget

SHARES = "A rank has its share of heads, networks and vocabulary; the rest is whole on each."


def mesh_of(
    *,
    tp: int = 1,
    sp: bool = False,
    fsdp: int = 1,
    tp_plan: Plan = "torch",
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
    from tfacct.ledger.workload import check_size
    from tfacct.parallel.mesh import Mesh

    sizes = {"tp": tp, "fsdp": fsdp, "ep": ep, "dp": dp, "pp": pp, "pp_chunks": pp_chunks, "cp": cp, "ulysses": ulysses}
    for name, size in sizes.items():
        check_size(option(name), size)
    if microbatches is not None:
        check_size(option("microbatches"), microbatches)
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
        tp_plan,
        ep,
        Fraction(str(imbalance)),
        dp,
        zero,
        pp,
        schedule,
        microbatches or 0,
        pp_chunks,
        cp,
        cp_method,
        ulysses,
    )
    return None if mesh == Mesh() else mesh


def count(mesh: Mesh | None) -> int:
    """Number of ranks. Those that divide experts have batches of their own, where they are more than a batch's."""
    return 1 if mesh is None else max(mesh.tp * mesh.fsdp, mesh.ep) * mesh.pp * mesh.parts


Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def in_devices(report: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """A report with `fit` whose errors name the devices of the budget, and not the option of the layout that follows
    from them."""

    @wraps(report)
    def named(*args: Given.args, **given: Given.kwargs) -> Returned:
        fit = cast("Budget | None", given.get("fit"))
        try:
            return report(*args, **given)
        except TfacctError as error:
            if fit is not None and fit.device is not None and fit.count > 1:
                for axis in ("tp", "fsdp"):
                    words = f"{fit.count:,} × {fit.device.id} ({axis}={fit.count})"
                    error.message = error.message.replace(option(axis, fit.count), words)
            raise

    return named


def fitting_words(budget: Budget, mesh: Mesh | None) -> str:
    """The budget after `fits`, with the ranks of several devices: `on 2 × h100-sxm (tp=2)`."""
    if budget.count == 1 or mesh is None:
        return budget.where
    axes = ("tp", "pp", "cp", "fsdp", "dp", "ep")
    return f"{budget.where} ({', '.join(f'{axis}={size}' for axis in axes if (size := getattr(mesh, axis)) > 1)})"


def checked(mesh: Mesh | None) -> Mesh | None:
    """The mesh, where its sizes make sense for what one rank of a pass has. Raises UsageError."""
    if mesh is None:
        return None
    from tfacct.parallel.checks import check_sequence, checked_axes

    check_sequence(mesh)
    if mesh.parts > 1 and mesh.ep > 1:
        both = f"{option('ep')} is not counted beside {option('cp')} here"
        raise UsageError(
            both, f"`tfacct train`, `comms` and `params` do, among ranks of {option('fsdp')} or {option('dp')}"
        )
    return checked_axes(mesh)


def as_one_has_them(subjects: Sequence[LoadedModel], tp: int, dtype: str | None, ep: int = 1) -> Sequence[LoadedModel]:
    """The models as one rank has them; themselves where there is one."""
    if (tp, ep) == (1, 1):
        return subjects
    from tfacct.reports import mesh

    ranked = on_ranks(subjects, tp, ep)
    for whole, one in zip(subjects, ranked, strict=True):
        mesh.check_formats(whole, one, dtype)
    return ranked


def as_one_of(
    subjects: Sequence[LoadedModel], mesh: Mesh | None, dtype: str | None
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[LeftOut]]:
    """The models that a mesh divides, as they are and as one rank of all stages together has them, and the others.
    Raises TfacctError where there is none."""
    if mesh is None:
        return subjects, subjects, []

    def divided(one: LoadedModel) -> LoadedModel:
        if mesh.pp > 1 and (how := one.storage(dtype)).by_block:
            raise UsageError(
                f"{one.name}: in {how.name} a matrix has other types in other blocks, which {option('pp')} cannot cut",
                f"another {option('dtype')}, or {option('pp', 1)}",
            )
        return as_one_has_them([staged(one, mesh.pp)], mesh.tp, dtype, mesh.ep)[0]

    return on_a_mesh(subjects, divided)


def as_one_runs(
    subjects: Sequence[LoadedModel], mesh: Mesh | None
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[LeftOut]]:
    """The same for what does not depend on how weights are stored."""
    if mesh is None:
        return subjects, subjects, []

    return on_a_mesh(subjects, lambda one: on_ranks([staged(one, mesh.pp)], mesh.tp, mesh.ep)[0])


def staged(subject: LoadedModel, pp: int) -> LoadedModel:
    """The same model. Raises TfacctError if it has no such stages."""
    if pp != 1:
        from tfacct.parallel.checks import checked_axes
        from tfacct.parallel.mesh import Mesh
        from tfacct.reports.pipes import check_axes

        check_axes(subject, checked_axes(Mesh(pp=pp)))
    return subject


def stages_of(subject: LoadedModel, mesh: Mesh | int | None) -> list[tuple[int, LoadedModel]]:
    """The model as ranks of its stages have it, one of each sort, with the stage's number."""
    pp = mesh if isinstance(mesh, int) else 1 if mesh is None else mesh.pp
    if pp == 1:
        return [(1, subject)]
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.pipes import as_stages

    return as_stages(subject, Mesh(pp=pp))


def kept(subject: LoadedModel, mesh: Mesh | None, work: Workload) -> Workload:
    """The part of a workload whose tokens one rank keeps. Raises TfacctError for tokens that the ranks do not divide,
    and for a model that keeps something else than each of its tokens."""
    if mesh is None or mesh.cp == 1:
        return work
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.mesh import check_sizes

    given = option("cp", mesh.cp)
    for group in subject.ledger.groups:
        states = [letters(line.spec) for line in group.lines if isinstance(line, State)]
        if any("S" not in axes for axes in states):
            raise ConfigError(f"{subject.name}: no rule for what is no key of a token beside {given}", "leave it out")
        if states and WINDOW in group.axes:
            said = (
                f"{subject.name}: no rule for windows beside {given}: who keeps the last tokens is the engine's choice"
            )
            raise ConfigError(said, "leave it out")
    check_sizes(subject, Mesh(cp=mesh.cp), {**work.axes(), "T": work.context})
    return part(mesh, work)


def part(mesh: Mesh | None, work: Workload) -> Workload:
    """The tokens of a context that the fullest rank keeps."""
    if mesh is None or mesh.cp == 1:
        return work
    from tfacct.parallel.work import kept as of_rank

    return of_rank(mesh, work)


def shared(undivided: Sequence[LoadedModel], mesh: Mesh | None) -> list[str]:
    """What is said of one rank's share of these models."""
    if not undivided or mesh is None or mesh.tp == 1:
        return []
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.mesh import uneven

    return [SHARES, *uneven(undivided, Mesh(mesh.tp))]


def drawn(chart: Chart, mesh: Mesh | None) -> Chart:
    """The picture of one rank, whose title says so."""
    return chart if mesh is None else replace(chart, title=f"{chart.title} (one of {count(mesh):,} ranks)")


def check_drawn(mesh: Mesh | None, what: str) -> None:
    """Refuse a picture of a rank that has other tokens or blocks than its model. Raises UsageError."""
    for axis in ("pp", "cp", "fsdp"):
        if mesh is not None and getattr(mesh, axis) > 1:
            raise UsageError(f"a picture of {what} shows no {option(axis)}", "leave it out")


HELD = ("total_params", "weights_bytes", "kv_cache_bytes", "total_bytes")
"""What of the whole model stands beside what one rank holds."""


def fitting_all(found: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """What fits every stage, of what fits each, by its number; and the stage that holds no more."""
    least = dict(found[0][1])
    for what in ("context", "batch"):
        largest, slack = f"largest_{what}", f"{what}_slack_bytes"

        def place(stage: tuple[int, dict[str, Any]], largest: str = largest, slack: str = slack) -> tuple[int, int]:
            one = stage[1]
            if one[largest] is None:  # nothing fits, or anything does
                return (0, 0) if one[slack] is None else (2, one[slack])
            return 1, one[largest]

        number, fewest = min(found, key=place)
        least |= {largest: fewest[largest], slack: fewest[slack], f"{what}_stage": number}
    return least


def beside(fact: dict[str, Any], whole: dict[str, Any], mesh: Mesh, keys: Sequence[str] = HELD) -> dict[str, Any]:
    """Facts of one rank, with those of the whole model."""
    from tfacct.reports.mesh import facts

    own = {**facts(mesh), "ranks": count(mesh)}
    return {**fact, "tp": mesh.tp, "mesh": own, "whole": {key: whole[key] for key in keys}}


def of_experts(subjects: Sequence[LoadedModel], mesh: Mesh) -> list[str]:
    """What is said of experts that ranks divide."""
    tp, ep = mesh.tp, mesh.ep
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


def notes(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], mesh: Mesh) -> list[str]:
    """What is said of what one rank holds, and of the whole model where there is one."""
    said = [*shared(subjects, mesh), *of_stage(subjects, facts, mesh), *of_experts(subjects, mesh)]
    said += [*of_tokens(mesh), *idle(mesh, "sp")]
    if mesh.fsdp > 1:
        said.append(
            "Ranks of fsdp divide weights, and have a batch each. What they gather of them as they run is not counted."
        )
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


def stage_facts(mesh: Mesh | None, number: int) -> dict[str, int]:
    """The number of stages, and the one that is shown, as in the JSON."""
    return {} if mesh is None or mesh.pp == 1 else {"pp": mesh.pp, "stage": number}


def of_work(subjects: Sequence[LoadedModel], stage: int, mesh: Mesh) -> list[str]:
    """What is said of what one rank computes; `stage`: the one that is shown, of one model."""
    said = [*shared(subjects, mesh), *of_stage(subjects, [{"stage": stage}], mesh, "computes")]
    said += of_experts(subjects, mesh)
    if mesh.ep > 1:
        said.append("Tokens are spread evenly over the experts.")
    if mesh.cp > 1:
        said.append(f"A rank has the queries of 1 of {mesh.cp:,} parts of each sequence, and sees the keys of all.")
    return [*said, *idle(mesh, "sp", "fsdp")]


def of_tokens(mesh: Mesh) -> list[str]:
    """What is said of the tokens that a rank keeps."""
    if mesh.cp == 1:
        return []
    return [f"A rank keeps 1 of {mesh.cp:,} parts of each sequence; a further token is kept by one of them."]


IDLE = {
    "sp": "sp divides the stream between products, of which nothing is counted here.",
    "fsdp": "Ranks of fsdp have a batch each, and the batch here is that of one; weights are gathered as it runs.",
    "ep": "ep divides experts, of which nothing is kept between steps.",
    "cp": "Ranks of cp have the same weights.",
}
"""What is said of an axis that divides nothing of what is counted."""


def idle(mesh: Mesh, *axes: str) -> list[str]:
    """What is said of these axes, where the mesh has them."""
    return [IDLE[axis] for axis in axes if (mesh.sp if axis == "sp" else getattr(mesh, axis) > 1)]


def of_stage(
    subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], mesh: Mesh | None, does: str = "holds"
) -> list[str]:
    """Which stage is shown, of one model."""
    if mesh is None or mesh.pp == 1 or len(subjects) != 1:
        return []
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.pipes import division

    stages = division(subjects[0].ledger, Mesh(pp=mesh.pp))
    return [f"{stages} Shown is stage {facts[0]['stage']:,}, which {does} most."]


def on_the_way(metrics: str, *axes: str) -> list[str]:
    """What is said of peaks among ranks of these axes."""
    if "peak" not in metrics:
        return []
    said = []
    if "tp" in axes:
        said.append(
            "A peak holds what collectives of tp do on the way where that was measured: `tfacct train` says so."
        )
    if "cp" in axes:
        said.append("What ranks of cp receive on the way is in no peak.")
    return said
