"""A parallel layout: sizes of its axes, the axes of a ledger that it shards, and the checks of both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, AxisNames, Size, divisors, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import EXPERTS, Matmul, Parameter, Pointwise
from tfacct.ledger.workload import check_size

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit

HEADS = ("K", "N", "Kd", "Nd", "Km", "Nm", "Og")
"""Axes whose shards are whole heads, or whole groups of heads."""
TP_AXES = (*HEADS, "F", "Fe", "Fs", "Vp", "V")
"""Axes that `tp` shards: heads, MLP widths, vocabularies."""
SUFFIX = re.compile("(?:full|[a-z]{3}|[0-9]+)*")
"""What follows the name of an axis that has several sizes in a model: an encoder's, those of a kind of layers."""
VOCABULARY = TP_AXES[-1]
VOCABULARIES = TP_AXES[-2:]
QK_NORMS = (".q_norm", ".k_norm")
"""Norms of queries and keys."""
TOKENS = ("T", "O")
"""Axes of the residual stream that `sp` also shards."""
CP_CHUNKS = 2
"""Chunks of a sequence on each rank of `cp`, one from the front and one from the back: under a causal mask all ranks
then compute as much."""
AXIS_NAMES = {
    "K": "key/value heads",
    "N": "query heads",
    "Kd": "key heads of DeltaNet",
    "Nd": "value heads of DeltaNet",
    "Km": "head groups of Mamba-2",
    "Nm": "heads of Mamba-2",
    "Og": "head groups of the output projection",
    "F": "feed-forward width",
    "Fe": "width of one expert",
    "Fs": "width of the shared expert",
    "Vp": "vocabulary of the per-layer embeddings",
    "V": "vocabulary",
    "E": "experts",
    "T": "tokens",
}

Plan: TypeAlias = Literal["torch", "megatron"]
Schedule: TypeAlias = Literal["gpipe", "1f1b", "interleaved", "zero-bubble"]
"""Order in which pipeline stages run micro-batches."""
Method: TypeAlias = Literal["ring", "gather"]
"""How keys and values reach the tokens of other ranks: from one rank to the next, or gathered."""


@cache
def tp_axis(axis: str) -> str | None:
    """The axis without its suffix, if it is one of `TP_AXES`; else None.

    >>> tp_axis("Nenc"), tp_axis("Fe"), tp_axis("Feexp"), tp_axis("Vs")
    ('N', 'Fe', 'Fe', None)
    """
    longest = sorted(TP_AXES, key=len, reverse=True)
    return next((name for name in longest if axis.startswith(name) and SUFFIX.fullmatch(axis[len(name) :])), None)


def tp_size(name: str, axes: Axes) -> Size | None:
    """Size of one of `TP_AXES` in a group, with any suffix; None if the group does not have it."""
    return next((size for axis, size in axes.items() if tp_axis(axis) == name), None)


def tp_order(axis: str) -> tuple[int, str]:
    """Sort key: the first axis in this order is the one that `tp` shards."""
    return TP_AXES.index(tp_axis(axis) or axis), axis


def axis_size(axis: str, size: Size) -> str:
    """An axis in words, and its size.

    >>> axis_size("K", 8)
    'the key/value heads (8)'
    """
    return f"the {AXIS_NAMES[tp_axis(axis) or axis]} ({size:,})"


@record
class Mesh:
    """A parallel layout.

    `tp`: tensor parallelism; `sp` shards the tokens of the residual stream too; `plan`: whether matmuls that read one
    tensor reduce its gradient each (torch) or together (megatron). `fsdp`: ranks that shard weights, each with a batch.
    `dp`: replicas, each with a batch; `zero`: the stage of ZeRO by which they shard optimizer state (1) and gradients
    (2). `ep`: how many of the ranks of `tp`, `fsdp`, `dp` and sequence shards share the experts, which are then whole;
    `imbalance`: token-expert pairs of the fullest of them, relative to the mean. `pp`: pipeline stages, by a `schedule`
    over `microbatches` (0: one sequence each in a training step, all at once otherwise); `chunks`: stages of a rank.
    `cp`, `ulysses`: ranks that shard the tokens of a sequence and have all weights; attention exchanges keys and values
    (`cp_method`), or heads.
    """

    tp: int = 1
    sp: bool = False
    fsdp: int = 1
    plan: Plan = "torch"
    ep: int = 1
    imbalance: Fraction = Fraction(1)
    dp: int = 1
    zero: int = 0
    pp: int = 1
    schedule: Schedule = "1f1b"
    microbatches: int = 0
    chunks: int = 1
    cp: int = 1
    cp_method: Method = "ring"
    ulysses: int = 1

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.batch_shards * self.pp * self.sequence_shards

    @property
    def batch_shards(self) -> int:
        """Ranks, or groups of ranks, that have different sequences."""
        return self.fsdp * self.dp

    @property
    def sequence_shards(self) -> int:
        """Ranks that shard a sequence. Sums over the batch also run over them."""
        return self.cp * self.ulysses

    @property
    def sequence_chunks(self) -> int:
        """Chunks of equally many tokens that a sequence is cut into."""
        return self.sequence_shards * (CP_CHUNKS if self.cp > 1 else 1) * (self.tp if self.sp else 1)

    @property
    def weight_shards(self) -> int:
        """Ranks that shard each weight: those of `fsdp`, and the shards of their sequences."""
        return self.fsdp * self.sequence_shards if self.fsdp > 1 else 1

    @property
    def replicas(self) -> int:
        """Ranks with the same weights and other tokens."""
        return self.dp if self.fsdp > 1 else self.dp * self.sequence_shards

    @property
    def expert_shards(self) -> int:
        """Ranks among which `fsdp` shards the same experts."""
        return self.tp * self.weight_shards // self.ep if self.ep > 1 and self.fsdp > 1 else self.weight_shards

    @property
    def expert_replicas(self) -> int:
        """Ranks of `dp` that have the same experts, each of them whole, and sum their gradients."""
        return self.tp * self.replicas // self.ep if self.ep > 1 else self.replicas

    def rank_axes(self, at: Axes) -> Axes:
        """Sizes of a step on a rank with its shard of each sequence."""
        if self.sequence_shards == 1:
            return at
        return {**at, **{axis: at[axis] // self.sequence_shards for axis in ("T", "S", "O") if at[axis] > 1}}

    def fits(self, axis: str, axes: Axes, ranks: int) -> bool:
        """True if `tp` ranks can shard an axis. Key/value heads may be fewer than ranks: several ranks have
        each. The last shard of a width or vocabulary may be smaller, unless `fsdp` shards it again."""
        size = axes[axis]
        name = tp_axis(axis)
        if name == "K" and ranks > size:
            return bool(ranks % size == 0)
        cut = name is not None and name not in HEADS
        return bool(size % ranks == 0 or (cut and self.fsdp == 1 and size > ranks))

    def shard_size(self, axis: str | None, size: Size) -> Size:
        """Size of a sharded axis on the fullest rank of `tp`."""
        return size if axis is None else rounded_up(size, self.tp)

    def sharded_axis(self, every: AxisNames, is_expert: bool = False) -> str | None:
        """Rule 1: the axis of a matmul or tensor that `tp` shards; None if it has none. Experts that `ep` shares are
        whole."""
        if self.tp == 1 or (is_expert and self.ep > 1):
            return None
        return min((axis for axis in every if tp_axis(axis)), key=tp_order, default=None)


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
    """The mesh of these options; None if it is one device. Raises UsageError."""
    sizes = {"tp": tp, "fsdp": fsdp, "ep": ep, "dp": dp, "pp": pp, "pp_chunks": pp_chunks, "cp": cp, "ulysses": ulysses}
    for name, size in sizes.items():
        check_size(option(name), size)
    if microbatches is not None:
        check_size(option("microbatches"), microbatches)
    if not isinstance(zero, int) or isinstance(zero, bool):
        raise UsageError(f"{option('zero')} must be 1, 2 or 3, not {zero!r}")
    if not isinstance(sp, bool):
        raise UsageError(f"{option('sp')} must be True or False, not {sp!r}")
    number = isinstance(imbalance, int | float | Fraction) and not isinstance(imbalance, bool)
    if not number or not float("-inf") < imbalance < float("inf"):
        raise UsageError(f"{option('imbalance')} must be a number, not {imbalance!r}")
    given = {"tp": tp, "sp": sp, "fsdp": fsdp, "ep": ep, "dp": dp, "zero": zero, "pp": pp, "cp": cp, "ulysses": ulysses}
    how = {"plan": tp_plan, "imbalance": Fraction(str(imbalance)), "schedule": schedule, "cp_method": cp_method}
    mesh = Mesh(**given, **how, microbatches=microbatches or 0, chunks=pp_chunks)  # type: ignore[arg-type]
    return None if mesh == Mesh() else mesh


def mesh_on(limit: MemoryLimit | None, mesh: Mesh | None, *, training: bool = False) -> Mesh | None:
    """The given mesh, checked against the number of devices; without one, all devices share the model, with tp for
    serving and fsdp for training. Devices beyond a training layout are its replicas; those of experts alone share the
    rest of the model by fsdp. Raises UsageError."""
    if limit is None or limit.count == 1:
        return mesh
    if mesh is None:
        return mesh_of(fsdp=limit.count) if training else mesh_of(tp=limit.count)
    if training and mesh.dp == mesh.fsdp == 1 and limit.count % max(mesh.ranks, ranks_of(mesh)) == 0:
        left = limit.count // mesh.ranks
        mesh = replace(mesh, fsdp=left) if mesh.ranks == 1 and not mesh.zero else replace(mesh, dp=left)
    limit.checked_for(_checked_replicas(mesh).ranks if training else ranks_of(mesh))
    return mesh


def ranks_of(mesh: Mesh | None) -> int:
    """Ranks of a forward pass. `ep` ranks beyond `tp` have different batches."""
    return 1 if mesh is None else max(mesh.tp * mesh.fsdp, mesh.ep) * mesh.pp * mesh.sequence_shards


def checked(mesh: Mesh) -> Mesh:
    """The mesh, if its axes go together. Raises UsageError."""
    check_tp_options(mesh)
    mesh = checked_axes(_checked_replicas(mesh))
    check_experts(mesh)
    if mesh.ranks == 1:
        raise UsageError("a single rank sends nothing", f"give {option('tp', 8)} or {option('fsdp', 8)}")
    return mesh


def checked_pass(mesh: Mesh | None) -> Mesh | None:
    """The mesh, if its axes go together in a forward pass whose collectives are not counted. Raises UsageError."""
    if mesh is None:
        return None
    check_tp_options(mesh)
    if mesh.sequence_shards > 1 and mesh.ep > 1:
        both = f"{option('ep')} is not supported with {option('cp')} here"
        raise UsageError(both, "`tfacct train`, `plan` and `params` support both together")
    return checked_axes(mesh)


def check_tp_options(mesh: Mesh) -> None:
    """Raises UsageError for options of `tp` without it."""
    if mesh.tp == 1 and (mesh.sp or mesh.plan != "torch"):
        given = option("sp", True) if mesh.sp else option("tp_plan", mesh.plan)
        raise UsageError(f"{given} needs {option('tp', 2)} or more, because it shards over the tp ranks")


def _checked_replicas(mesh: Mesh) -> Mesh:
    """The mesh, with ZeRO's third stage, which shards weights too, as `fsdp`. Raises UsageError."""
    if mesh.zero not in (0, 1, 2, 3):
        raise UsageError(
            f"{option('zero')} must be 1, 2 or 3, not {mesh.zero}", f"{option('dp', 8)} alone shards nothing"
        )
    if mesh.zero and (mesh.dp == 1 or mesh.fsdp > 1):
        zero = option("zero", mesh.zero)
        if mesh.fsdp > 1:
            sharded = f"{zero} does not work with {option('fsdp', mesh.fsdp)}, which already shards gradients"
            raise UsageError(sharded, f"{option('dp', mesh.fsdp)} {zero}" if mesh.dp == 1 else f"leave {zero} out")
        raise UsageError(
            f"{zero} needs {option('dp')}, because it shards over the dp ranks", f"for example {option('dp', 8)}"
        )
    if mesh.ep > mesh.tp and mesh.fsdp == mesh.dp == mesh.sequence_shards == 1 and mesh.ep % mesh.tp == 0:
        mesh = replace(mesh, dp=mesh.ep // mesh.tp)  # everything else is whole on each rank, as in serving
    return replace(mesh, fsdp=mesh.dp, dp=1, zero=0) if mesh.zero == 3 else mesh


def check_experts(mesh: Mesh) -> None:
    """Raises UsageError for ranks that cannot share experts."""
    batches = "fsdp" if mesh.fsdp > 1 else "dp"
    groups = getattr(mesh, batches) * mesh.sequence_shards
    if mesh.ep > 1 and (mesh.ep % mesh.tp or mesh.tp * groups % mesh.ep):
        sizes = [mesh.tp * n for n in divisors([groups]) if mesh.tp * n > 1]
        also = f"{option('tp')} and {option(batches)}"
        if mesh.sequence_shards > 1:
            also = f"{option('tp')}, {option(batches)} and {option('cp' if mesh.cp > 1 else 'ulysses')}"
        whole = " into whole tp groups" if mesh.tp > 1 else ""
        raise UsageError(
            f"{option('ep', mesh.ep)} does not divide the {also} ranks ({mesh.tp * groups:,}){whole}",
            f"sizes that do: {', '.join(map(str, sizes))}" if sizes else f"also give {option(batches, mesh.ep)}",
        )
    if mesh.imbalance != 1 and mesh.ep == 1:
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        raise UsageError(f"{given} applies to routed tokens, so it needs {option('ep', 2)} or more")
    if mesh.imbalance < 1 or mesh.imbalance > mesh.ep:
        raise UsageError(
            f"{option('imbalance')} is the load of the fullest {option('ep')} rank relative to the mean: it must be"
            " from 1 to"
            f" {mesh.ep:,}"
        )


def checked_axes(mesh: Mesh) -> Mesh:
    """The mesh, if pipeline stages and shards of sequences go together. Raises UsageError."""
    given = {
        option("schedule", mesh.schedule): mesh.schedule != "1f1b",
        option("microbatches", mesh.microbatches): bool(mesh.microbatches),
        option("pp_chunks", mesh.chunks): mesh.chunks > 1,
    }
    alone = next((name for name, so in given.items() if so), None)
    if mesh.pp == 1 and alone:
        raise UsageError(f"{alone} applies to pipeline stages, so it needs {option('pp', 2)} or more")
    if mesh.cp == 1 and mesh.cp_method != "ring":
        raise UsageError(
            f"{option('cp_method', mesh.cp_method)} applies to context parallelism, so it needs {option('cp', 2)} or"
            " more"
        )
    if mesh.chunks > 1 and mesh.schedule != "interleaved":
        raise UsageError(f"{option('pp_chunks', mesh.chunks)} needs {option('schedule', 'interleaved')}")
    interleaved = mesh.schedule == "interleaved" and mesh.chunks == 1
    return replace(mesh, chunks=2) if interleaved else mesh


def check(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError if the mesh does not divide the size of an axis that it shards."""
    if mesh.sequence_shards > 1:
        _check_sequences(ledger, mesh, at)
    everywhere = [(group.axes, axis) for group in ledger.groups for axis in _tp_axes(group, mesh)]
    if mesh.sp:
        everywhere.append((mesh.rank_axes(at), "T"))
    experts = [group.axes[EXPERTS] for group in ledger.groups if EXPERTS in group.axes]
    uneven = [count for count in experts if count % mesh.ep]
    if uneven:
        problem = f"{option('ep', mesh.ep)} does not divide {axis_size('E', uneven[0])}"
        raise UsageError(problem, f"supported sizes: {', '.join(map(str, divisors(experts)))}")
    gathered = [group.axes for group in ledger.groups if joint_qk_norm(group)]

    def fits(axes: Axes, axis: str, ranks: int) -> bool:
        undivided = tp_axis(axis) == "K" and any(axes is each for each in gathered)  # which no two ranks have
        return not (undivided and axes[axis] % ranks) and mesh.fits(axis, axes, ranks)

    wrong = sorted({(axis, axes[axis]) for axes, axis in everywhere if not fits(axes, axis, mesh.tp)})
    if not wrong:
        return
    heads = {axes[axis] for axes, axis in everywhere if tp_axis(axis) == "N"}
    uncopied = [(axis, size) for axis, size in wrong if tp_axis(axis) != "K"] or wrong
    problem = f"{option('tp', mesh.tp)} does not divide {' or '.join(axis_size(*each) for each in uncopied)}"
    if wrong[0][0] == wrong[-1][0] == "T":
        raise UsageError(problem, f"{option('sp', True)} shards the tokens: use a multiple of {mesh.tp}")
    tried = divisors(heads or {size for _, size in wrong})
    possible = [n for n in tried if all(fits(axes, axis, n) for axes, axis in everywhere)]
    copied = [n for n in possible if any(axes[axis] < n for axes, axis in everywhere if tp_axis(axis) == "K")]
    sizes = ", ".join(str(n) for n in possible if n not in copied)
    copies = f"; with copies of key/value heads: {', '.join(map(str, copied))}" if copied else ""
    raise UsageError(problem, f"supported sizes: {sizes}{copies}")


def _check_sequences(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError for tokens or heads that the shards of a sequence do not divide."""
    names = [option(name, size) for name, size in (("cp", mesh.cp), ("ulysses", mesh.ulysses)) if size > 1]
    named = " and ".join(names)
    if "T" in at:
        if at["T"] != at["S"]:
            new = "one new token" if at["T"] == 1 else f"{at['T']:,} new tokens"
            problem = f"{named} shards whole sequences, not {new} of {at['S']:,}"
            raise UsageError(
                problem, f"use {option('tokens', at['S'])} for a prompt, or {option('train', True)} for a training step"
            )
        masked = any(
            isinstance(line, Matmul) and line.mask != "full" for group in ledger.groups for line in group.lines
        )
        # without a mask, all ranks see the same number of keys anyway
        chunks = CP_CHUNKS if mesh.cp > 1 and masked else 1
        pieces = mesh.sequence_shards * chunks
        if at["T"] % pieces:
            raise UsageError(
                f"{named} {'does' if len(names) == 1 else 'do'} not divide {axis_size('T', at['T'])}",
                f"the tokens are split into {pieces:,} chunks: use a multiple of {pieces:,} tokens",
            )
    heads = sorted(
        {(axis, size) for group in ledger.groups for axis, size in group.axes.items() if tp_axis(axis) in HEADS}
    )
    wrong = [(axis, size) for axis, size in heads if mesh.ulysses > 1 and size % (mesh.tp * mesh.ulysses)]
    if wrong:
        also = f" with {option('tp', mesh.tp)}" if mesh.tp > 1 else ""
        problem = " or ".join(axis_size(*each) for each in wrong)
        sizes = divisors(size // mesh.tp for _, size in heads if size % mesh.tp == 0)
        fitting = f"supported sizes: {', '.join(map(str, sizes))}"
        if any(size % mesh.tp for _, size in heads):
            fitting = f"no size works, because {option('tp', mesh.tp)} alone does not divide all heads"
        raise UsageError(f"{option('ulysses', mesh.ulysses)}{also} does not divide {problem}", fitting)


def joint_qk_norm(group: Group) -> bool:
    """True if one norm spans the queries, or the keys, of all heads, so that it needs them gathered."""

    def found() -> bool:
        norms = (line for line in group.lines if isinstance(line, Pointwise) and line.path.endswith(QK_NORMS))
        return any(is_joint_qk_norm(parameter) for line in norms for parameter in line.parameters())

    return group.cached_lines.once(joint_qk_norm, found)


def is_joint_qk_norm(parameter: Parameter) -> bool:
    """True for the scale of such a norm, which every rank has whole."""
    spans_heads = len(parameter.dims) < 2 and any(tp_axis(axis) in HEADS for axis in parameter.axes)
    return spans_heads and paths.module_of(parameter.path).endswith(QK_NORMS)


def replicated_heads(ledger: Ledger, mesh: Mesh) -> list[int]:
    """Numbers of key/value heads below the number of `tp` ranks: several ranks have each head."""
    found = {group.axes[axis] for group in ledger.groups for axis in _tp_axes(group, mesh) if tp_axis(axis) == "K"}
    return sorted(heads for heads in found if heads < mesh.tp)


def padded_axes(ledger: Ledger, mesh: Mesh) -> list[tuple[str, int]]:
    """Axes of which the last `tp` ranks have smaller shards, with their sizes."""
    found = {(axis, group.axes[axis]) for group in ledger.groups for axis in _tp_axes(group, mesh)}
    return sorted((axis, size) for axis, size in found if tp_axis(axis) not in HEADS and size % mesh.tp)


def _tp_axes(group: Group, mesh: Mesh) -> Iterator[str]:
    """Axes of a group that `tp` shards."""
    there = [axis for axis in group.axes if tp_axis(axis)]
    if mesh.ep > 1 and EXPERTS in group.axes:  # only experts are whole
        there = [axis for axis in there if tp_axis(axis) != "Fe" or axis in _outside_experts(group)]
    yield from there


def _outside_experts(group: Group) -> frozenset[str]:
    """Axes of a group's parameters outside experts."""
    lines = group.cached_lines
    return lines.once(
        _outside_experts, lambda: frozenset(a for one in lines.parameters if not one.is_expert for a in one.axes)
    )
