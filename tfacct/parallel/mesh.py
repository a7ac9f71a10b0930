"""Where things live: the letters that a mesh divides, and whether it can."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import gcd, isqrt
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from tfacct.base.errors import UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Letters, Size, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import EXPERTS, Matmul, Parameter, Pointwise
from tfacct.ledger.workload import check_size

if TYPE_CHECKING:
    from tfacct.loading.where import MemoryLimit

TP_AXES = ("K", "N", "F", "Fe", "Fs", "V")
"""Letters that `tp` divides: heads, widths of networks, the vocabulary."""
SUFFIX = re.compile("(?:full|[a-z]{3}|[0-9]+)*")
"""What may stand behind a letter, of which a model has several sizes: an encoder's, those of a kind of blocks."""
VOCABULARY = TP_AXES[-1]
HEADS = ("K", "N")
"""Those that stay whole numbers on every rank."""
QK_NORMS = (".q_norm", ".k_norm")
"""Norms of queries and keys."""
TOKENS = ("T", "O")
"""Letters of the stream that `sp` divides beside them."""
CP_CHUNKS = 2
"""Pieces of a sequence that each rank of `cp` has, one from the front and one from the back: under a causal mask all
then compute as much."""
AXIS_NAMES = {
    "K": "key/value heads",
    "N": "query heads",
    "F": "feed-forward width",
    "Fe": "width of one expert",
    "Fs": "width of the shared network",
    "V": "vocabulary",
    "E": "experts",
    "T": "new tokens",
}

Plan: TypeAlias = Literal["torch", "megatron"]
Schedule: TypeAlias = Literal["gpipe", "1f1b", "interleaved", "zero-bubble"]
"""Order in which the stages of a pipeline take microbatches."""
Method: TypeAlias = Literal["ring", "gather"]
"""How keys and values reach the tokens of other ranks: from one rank to the next, or gathered."""


@cache
def tp_axis(letter: str) -> str | None:
    """The letter of `TP_AXES` that this one is, whatever mark stands behind it; None if it is none of them.

    >>> lives("Nenc"), lives("Fe"), lives("Feexp"), lives("Vs")
    ('N', 'Fe', 'Fe', None)
    """
    longest = sorted(TP_AXES, key=len, reverse=True)
    return next((own for own in longest if letter.startswith(own) and SUFFIX.fullmatch(letter[len(own) :])), None)


def tp_size(own: str, axes: Axes) -> Size | None:
    """Size of a letter of `TP_AXES` in a group, whatever mark it has there; None where the group has none."""
    return next((size for letter, size in axes.items() if tp_axis(letter) == own), None)


@record
class Mesh:
    """Ranks: `fsdp` groups of `tp` each. `sp`: the stream's tokens are divided too. `plan`: whether products that
    read one tensor each reduce its gradient, as torch's plan has it, or together, as Megatron does. `ep`: so many
    of the ranks divide the experts, which `tp` then leaves whole: those of `tp` and of `fsdp`, or of `dp`, and of
    parts of sequences. `imbalance`: the pairs of token and expert that the fullest of them receives, over the mean.
    `dp`: copies of all that, each with a batch of its own; `zero`: the stage of ZeRO by which these divide moments
    (1) and gradients (2). `pp`: stages that divide the blocks, by a `schedule` over so many `microbatches` (0: one
    sequence each in a training step, one in all else); `chunks`: stages of each rank. `cp` and `ulysses`: ranks
    that divide a sequence's tokens and have all weights; attention is brought together by keys and values
    (`cp_method`), or by heads."""

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
        return self.tp * self.fsdp * self.dp * self.pp * self.sequence_shards

    @property
    def sequence_shards(self) -> int:
        """Number of parts of a sequence. What sums over the batch sums over these too."""
        return self.cp * self.ulysses

    @property
    def sequence_chunks(self) -> int:
        """Number of pieces of a sequence that are dealt out to ranks, each of as many tokens."""
        return self.sequence_shards * (CP_CHUNKS if self.cp > 1 else 1) * (self.tp if self.sp else 1)

    @property
    def weight_shards(self) -> int:
        """Number of ranks that divide each weight: those of `fsdp`, and the parts of their sequences."""
        return self.fsdp * self.sequence_shards if self.fsdp > 1 else 1

    @property
    def replicas(self) -> int:
        """Number of ranks that have the same weights and other tokens."""
        return self.dp if self.fsdp > 1 else self.dp * self.sequence_shards

    @property
    def expert_shards(self) -> int:
        """Number of ranks that `fsdp` divides the same experts among."""
        return self.tp * self.weight_shards // self.ep if self.ep > 1 and self.fsdp > 1 else self.weight_shards

    @property
    def expert_replicas(self) -> int:
        """Number of ranks of `dp` that have the same experts, each of them whole, and sum their gradients."""
        return self.tp * self.replicas // self.ep if self.ep > 1 else self.replicas

    def own(self, at: Axes) -> Axes:
        """Sizes of a step on a rank that has its part of each sequence."""
        if self.sequence_shards == 1:
            return at
        return {**at, **{letter: at[letter] // self.sequence_shards for letter in ("T", "S", "O") if at[letter] > 1}}

    def fits(self, letter: str, axes: Axes, ranks: int) -> bool:
        """True if so many ranks of `tp` divide a letter. Fewer key/value heads than ranks are on several each. Of
        a width or a vocabulary the last ranks may have fewer, if `fsdp` does not divide that again."""
        whole = axes[letter]
        own = tp_axis(letter)
        if own == "K" and ranks > whole:
            return bool(ranks % whole == 0)
        cut = own is not None and own not in HEADS
        return bool(whole % ranks == 0 or (cut and self.fsdp == 1 and whole > ranks))

    def share(self, letter: str | None, whole: Size) -> Size:
        """Size of a divided letter on the fullest rank of `tp`."""
        return whole if letter is None else rounded_up(whole, self.tp)

    def divided(self, every: Letters, bank: bool = False) -> str | None:
        """Rule 1: the letter of a product, or of a tensor, that `tp` divides; None if it has none of them. Those of
        experts that `ep` divides are whole."""
        if self.tp == 1 or (bank and self.ep > 1):
            return None
        return min((letter for letter in every if tp_axis(letter)), key=tp_order, default=None)


def tp_order(letter: str) -> tuple[int, str]:
    """Where a letter that is divided stands among others."""
    return TP_AXES.index(tp_axis(letter) or letter), letter


def check(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError if a letter that the mesh divides has no size that it divides."""
    if mesh.sequence_shards > 1:
        _check_parts(ledger, mesh, at)
    everywhere = [(group.axes, letter) for group in ledger.groups for letter in _lives(group, mesh)]
    if mesh.sp:
        everywhere.append((mesh.own(at), "T"))
    banks = [group.axes[EXPERTS] for group in ledger.groups if EXPERTS in group.axes]
    uneven = [whole for whole in banks if whole % mesh.ep]
    if uneven:
        fitting = ", ".join(map(str, divisors(banks)))
        said = f"{option('ep', mesh.ep)} does not divide E = {uneven[0]:,} ({AXIS_NAMES['E']})"
        raise UsageError(said, f"sizes that divide all: {fitting}")
    gathered = [group.axes for group in ledger.groups if joint_qk_norm(group)]

    def fits(axes: Axes, letter: str, ranks: int) -> bool:
        whole = tp_axis(letter) == "K" and any(
            axes is each for each in gathered
        )  # no rank has a copy of what is gathered
        return not (whole and axes[letter] % ranks) and mesh.fits(letter, axes, ranks)

    wrong = sorted({(letter, axes[letter]) for axes, letter in everywhere if not fits(axes, letter, mesh.tp)})
    if not wrong:
        return
    named = ", ".join(f"{letter} = {whole:,} ({axis_label(letter)})" for letter, whole in wrong)
    said = f"{option('tp', mesh.tp)} does not divide {named}"
    if wrong[0][0] == wrong[-1][0] == "T":
        raise UsageError(said, f"{option('sp', True)} divides the tokens: ask for a multiple of {mesh.tp}")
    heads = {axes[letter] for axes, letter in everywhere if tp_axis(letter) == "N"}
    tried = divisors(heads or {whole for _, whole in wrong})
    possible = [n for n in tried if all(fits(axes, letter, n) for axes, letter in everywhere if letter != "T")]
    raise UsageError(said, f"sizes that divide all: {', '.join(map(str, possible))}")


def _check_parts(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError for tokens, or heads, that the parts of a sequence do not divide."""
    names = [option(name, size) for name, size in (("cp", mesh.cp), ("ulysses", mesh.ulysses)) if size > 1]
    named = " and ".join(names)
    if "T" in at:
        if at["T"] != at["S"]:
            new = "one new token" if at["T"] == 1 else f"{at['T']:,} new tokens"
            said = f"{named} divides whole sequences, not {new} of {at['S']:,}"
            raise UsageError(said, f"a prompt: {option('tokens', at['S'])}; a step: {option('train', True)}")
        masked = any(
            isinstance(line, Matmul) and line.mask != "full" for group in ledger.groups for line in group.lines
        )
        pieces = mesh.sequence_shards * (
            CP_CHUNKS if mesh.cp > 1 and masked else 1
        )  # without a mask all see as many keys anyway
        if at["T"] % pieces:
            raise UsageError(
                f"{named} does not divide T = {at['T']:,} ({AXIS_NAMES['T']})",
                f"tokens are dealt out in {pieces:,} pieces: ask for a multiple of {pieces:,}",
            )
    heads = sorted(
        {(letter, size) for group in ledger.groups for letter, size in group.axes.items() if tp_axis(letter) in HEADS}
    )
    wrong = [(letter, whole) for letter, whole in heads if mesh.ulysses > 1 and whole % (mesh.tp * mesh.ulysses)]
    if wrong:
        also = f" beside {option('tp', mesh.tp)}" if mesh.tp > 1 else ""
        said = ", ".join(f"{letter} = {whole:,} ({axis_label(letter)})" for letter, whole in wrong)
        sizes = divisors(whole // mesh.tp for _, whole in heads if whole % mesh.tp == 0)
        fitting = f"sizes that divide all: {', '.join(map(str, sizes))}"
        if any(whole % mesh.tp for _, whole in heads):
            fitting = f"no size does: {option('tp', mesh.tp)} alone does not divide all of them"
        raise UsageError(f"{option('ulysses', mesh.ulysses)}{also} does not divide {said}", fitting)


def axis_label(letter: str) -> str:
    """What a letter is the number of."""
    return AXIS_NAMES[tp_axis(letter) or letter]


def joint_qk_norm(group: Group) -> bool:
    """True if its queries and keys are normed over all heads together, which reads them whole."""

    def found() -> bool:
        norms = (line for line in group.lines if isinstance(line, Pointwise) and line.path.endswith(QK_NORMS))
        return any(is_joint_qk_norm(parameter) for line in norms for parameter in line.parameters())

    return group.own.once(joint_qk_norm, found)


def is_joint_qk_norm(parameter: Parameter) -> bool:
    """True of the scale of a norm over all heads together, which every rank has."""
    return paths.module_of(parameter.path).endswith(QK_NORMS) and any(tp_axis(axis) in HEADS for axis in parameter.axes)


def replicated_heads(ledger: Ledger, mesh: Mesh) -> list[int]:
    """Numbers of key/value heads that are fewer than the ranks of `tp`, so that several ranks have each."""
    found = {group.axes[letter] for group in ledger.groups for letter in _lives(group, mesh) if tp_axis(letter) == "K"}
    return sorted(heads for heads in found if heads < mesh.tp)


def padded_axes(ledger: Ledger, mesh: Mesh) -> list[tuple[str, int]]:
    """Letters, with their sizes, of which the last ranks of `tp` have fewer than the first."""
    found = {(letter, group.axes[letter]) for group in ledger.groups for letter in _lives(group, mesh)}
    return sorted((letter, whole) for letter, whole in found if tp_axis(letter) not in HEADS and whole % mesh.tp)


def _lives(group: Group, mesh: Mesh) -> Iterator[str]:
    """Letters of a group that `tp` divides."""
    there = [letter for letter in group.axes if tp_axis(letter)]
    if mesh.ep > 1 and EXPERTS in group.axes:  # those of experts alone are whole
        there = [letter for letter in there if tp_axis(letter) != "Fe" or letter in _outside_banks(group)]
    yield from there


def _outside_banks(group: Group) -> frozenset[str]:
    """Letters of a group's parameters that are no banks."""
    own = group.own
    return own.once(_outside_banks, lambda: frozenset(a for one in own.parameters if not one.bank for a in one.axes))


def divisors(sizes: Iterable[int]) -> list[int]:
    """Numbers that divide all of these.

    >>> divisors([32, 8, 28672])
    [1, 2, 4, 8]
    """
    common = gcd(*sizes)
    small = [n for n in range(1, isqrt(common) + 1) if common % n == 0]
    return sorted({*small, *(common // n for n in small)})


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
    axes = {"tp": tp, "sp": sp, "fsdp": fsdp, "ep": ep, "dp": dp, "zero": zero, "pp": pp, "cp": cp, "ulysses": ulysses}
    how = {"plan": tp_plan, "imbalance": Fraction(str(imbalance)), "schedule": schedule, "cp_method": cp_method}
    mesh = Mesh(**axes, **how, microbatches=microbatches or 0, chunks=pp_chunks)  # type: ignore[arg-type]
    return None if mesh == Mesh() else mesh


def ranks_of(mesh: Mesh | None) -> int:
    """Number of ranks. Those that divide experts have batches of their own, where they are more than a batch's."""
    return 1 if mesh is None else max(mesh.tp * mesh.fsdp, mesh.ep) * mesh.pp * mesh.sequence_shards


def checked(mesh: Mesh) -> Mesh:
    """The mesh, where its sizes and its plan make sense. Raises UsageError."""
    for name, value in (("tp", mesh.tp), ("fsdp", mesh.fsdp), ("ep", mesh.ep), ("dp", mesh.dp)):
        check_size(option(name), value)
    if mesh.plan not in ("torch", "megatron"):
        raise UsageError(f"{option('tp_plan')} is torch or megatron, not {mesh.plan!r}")
    check_sequence(mesh)
    mesh = checked_axes(_checked_copies(mesh))
    check_experts(mesh)
    if mesh.ranks == 1:
        raise UsageError("one rank sends nothing", f"give {option('tp', 8)} or {option('fsdp', 8)}")
    return mesh


def check_sequence(mesh: Mesh) -> None:
    """Raises UsageError for ranks of `tp` that are asked how they divide, and are none."""
    if mesh.tp == 1 and (mesh.sp or mesh.plan != "torch"):
        given = option("sp", True) if mesh.sp else option("tp_plan", mesh.plan)
        raise UsageError(f"{given} divides what {option('tp')} does: it needs {option('tp', 2)} or more")


def _checked_copies(mesh: Mesh) -> Mesh:
    """The mesh; ranks that divide weights too, by ZeRO's third stage, are those of `fsdp`. Raises UsageError."""
    if mesh.zero not in (0, 1, 2, 3):
        raise UsageError(f"{option('zero')} is 1, 2 or 3, not {mesh.zero}", f"{option('dp', 8)} alone divides nothing")
    if mesh.zero and (mesh.dp == 1 or mesh.fsdp > 1):
        raise UsageError(f"{option('zero', mesh.zero)} goes with {option('dp')}, without {option('fsdp')}")
    if mesh.ep > mesh.tp and mesh.fsdp == mesh.dp == mesh.sequence_shards == 1 and mesh.ep % mesh.tp == 0:
        mesh = replace(mesh, dp=mesh.ep // mesh.tp)  # all else is whole on each, as where a model is served
    return replace(mesh, fsdp=mesh.dp, dp=1, zero=0) if mesh.zero == 3 else mesh


def check_experts(mesh: Mesh) -> None:
    """Raises UsageError for ranks that cannot divide experts."""
    batches = "fsdp" if mesh.fsdp > 1 else "dp"
    groups = getattr(mesh, batches) * mesh.sequence_shards
    if mesh.ep > 1 and (mesh.ep % mesh.tp or mesh.tp * groups % mesh.ep):
        sizes = [mesh.tp * n for n in divisors([groups]) if mesh.tp * n > 1]
        also = f"{option('tp')} and {option(batches)}"
        if mesh.sequence_shards > 1:
            also = f"{option('tp')}, {option(batches)} and {option('cp' if mesh.cp > 1 else 'ulysses')}"
        raise UsageError(
            f"{option('ep', mesh.ep)} divides experts among the ranks of {also}, a batch's ranks together",
            f"sizes that they have: {', '.join(map(str, sizes))}" if sizes else f"give {option(batches, mesh.ep)} too",
        )
    if mesh.imbalance != 1 and mesh.ep == 1:
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        raise UsageError(f"{given} applies to tokens that go to experts: it needs {option('ep', 2)} or more")
    if mesh.imbalance < 1 or mesh.imbalance > mesh.ep:
        raise UsageError(
            f"{option('imbalance')} is what the fullest rank of {option('ep')} receives over the mean: from 1 to"
            f" {mesh.ep:,}"
        )


def checked_axes(mesh: Mesh) -> Mesh:
    """The mesh, where stages and parts of sequences make sense. Raises UsageError."""
    for name, value in (("pp", mesh.pp), ("pp_chunks", mesh.chunks), ("cp", mesh.cp), ("ulysses", mesh.ulysses)):
        check_size(option(name), value)
    if mesh.schedule not in get_args(Schedule):
        raise UsageError(f"{option('schedule')} is {listed(get_args(Schedule))}, not {mesh.schedule!r}")
    if mesh.cp_method not in get_args(Method):
        raise UsageError(f"{option('cp_method')} is {listed(get_args(Method))}, not {mesh.cp_method!r}")
    if mesh.microbatches:
        check_size(option("microbatches"), mesh.microbatches)
    given = {
        option("schedule", mesh.schedule): mesh.schedule != "1f1b",
        option("microbatches", mesh.microbatches): bool(mesh.microbatches),
        option("pp_chunks", mesh.chunks): mesh.chunks > 1,
    }
    alone = next((name for name, so in given.items() if so), None)
    if mesh.pp == 1 and alone:
        raise UsageError(f"{alone} applies to stages: it needs {option('pp', 2)} or more")
    if mesh.cp == 1 and mesh.cp_method != "ring":
        raise UsageError(
            f"{option('cp_method', mesh.cp_method)} applies to {option('cp')}: it needs {option('cp', 2)} or more"
        )
    if mesh.chunks > 1 and mesh.schedule != "interleaved":
        raise UsageError(f"{option('pp_chunks', mesh.chunks)} goes with {option('schedule', 'interleaved')}")
    interleaved = mesh.schedule == "interleaved" and mesh.chunks == 1
    return replace(mesh, chunks=2) if interleaved else mesh


def checked_pass(mesh: Mesh | None) -> Mesh | None:
    """The mesh, where its sizes make sense for one rank of a pass that sends nothing here. Raises UsageError."""
    if mesh is None:
        return None
    from tfacct.parallel.mesh import check_sequence, checked_axes

    check_sequence(mesh)
    if mesh.sequence_shards > 1 and mesh.ep > 1:
        both = f"{option('ep')} is not counted beside {option('cp')} here"
        raise UsageError(
            both, f"`tfacct train`, `comms` and `params` do, among ranks of {option('fsdp')} or {option('dp')}"
        )
    return checked_axes(mesh)


def facts(mesh: Mesh) -> dict[str, Any]:
    """A mesh, as in the JSON."""
    return {
        "tp": mesh.tp,
        "sp": mesh.sp,
        "fsdp": mesh.fsdp,
        "tp_plan": mesh.plan,
        "ranks": mesh.ranks,
        "ep": mesh.ep,
        "imbalance": float(mesh.imbalance),
        "dp": mesh.dp,
        "zero": mesh.zero,
        "pp": mesh.pp,
        "schedule": mesh.schedule if mesh.pp > 1 else None,
        "microbatches": mesh.microbatches or None,
        "pp_chunks": mesh.chunks,
        "cp": mesh.cp,
        "cp_method": mesh.cp_method if mesh.cp > 1 else None,
        "ulysses": mesh.ulysses,
    }


def mesh_on(limit: MemoryLimit | None, mesh: Mesh | None, *, training: bool = False) -> Mesh | None:
    """The mesh that was asked for, checked against the number of devices; without one, the devices share the model: by
    tp to serve, by fsdp to train. Raises UsageError."""
    if limit is None or limit.count == 1:
        return mesh
    if mesh is None:
        return mesh_of(fsdp=limit.count) if training else mesh_of(tp=limit.count)
    limit.checked_for(mesh.ranks if training else ranks_of(mesh))
    return mesh
