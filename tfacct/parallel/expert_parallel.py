"""What experts send: their widths divided among the ranks of `tp`, or whole experts among those of `ep`.

Shazeer et al. (arXiv 1701.06538), section 3.1; Lepikhin et al., "GShard" (2006.16668), section 3.2. Which sums a rank
keeps to itself, and when tokens are cut into slices: transformers' MoeExpertsParallel, AllToAllEP and AllReduceEP.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, divided, rounded_up, size, whole_bytes
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import ACTIVE, EXPERTS, GATE, Matmul
from tfacct.parallel.collectives import Collective, Over, When, collective, to_all
from tfacct.parallel.mesh import Mesh

SLICE, RECEIVED = "Tsl", "Rx"
"""Tokens that a rank sends, those of all its sequences, and rows of tokens that the fullest rank receives."""
COUNT_BITS = 64
"""Width of the numbers of tokens that ranks tell one another, one for each expert."""


def of_experts(group: Group, mesh: Mesh, at: Axes, bits: int, shares: int, train: bool) -> Iterator[Collective]:
    """Collectives of a group's experts, in numbers of so many bits; `shares`: those of the weights that sum them."""
    what = of_banks(group)
    if what is None:
        return
    axes = group.bound(at)
    if mesh.sp and train:
        yield from _of_routers(group, mesh, axes, bits)
    if mesh.sp and mesh.ep == 1:
        yield from _scattered(what, group, mesh, axes, bits, train)
    elif mesh.ep == 1 or (mesh.ep == mesh.tp and not train and not mesh.sp):
        # The ranks have the same tokens: a sum over Fe, or over the experts of a token, is a part of the whole on each.
        yield from _summed(what, group, mesh, axes, bits, shares, train)
    else:
        yield from _exchanged(what, group, mesh, axes, bits, shares, train)


def between(group: Group, mesh: Mesh) -> str | None:
    """The part of a group whose experts, and what stands beside them, run between a gather of the stream and a scatter
    of all their sums at once; None if there is none."""
    if not mesh.sp or mesh.ep > 1:
        return None
    what = of_banks(group)
    return None if what is None else f"{paths.module_of(what)}."


def of_banks(group: Group) -> str | None:
    """What the banks of a group stand in; None where it has none."""

    def found() -> str | None:
        banks = (line for line in reversed(group.lines) if isinstance(line, Matmul) and line.bank)
        return next((paths.module_of(line.path) for line in banks), None)

    return group.own.once(of_banks, found)


def _scattered(what: str, group: Group, mesh: Mesh, axes: Axes, bits: int, train: bool) -> Iterator[Collective]:
    """Where the stream's tokens are divided, experts, router and shared network read them gathered, once, and what they
    make is a part of one sum. Backward the same of gradients: those of the stream are parts of a sum in all of them,
    for the router's are linear in those of the weights that it gave."""
    tokens = axes["B"] * axes["T"]
    whole, part = (whole_bytes(divided(tokens * axes["D"], ranks), bits) for ranks in (1, mesh.tp))
    for when in ("forward", "backward") if train else ("forward",):
        yield collective(what, "all-gather", "tp", when, "experts", group.count, whole, mesh.tp, "T")
        yield collective(what, "reduce-scatter", "tp", when, "experts", group.count, part, mesh.tp, "Fe")


def _of_routers(group: Group, mesh: Mesh, axes: Axes, bits: int) -> Iterator[Collective]:
    """Gradients of the products beside experts that every rank has: parts of a sum over the experts' width, or over
    tokens where each rank has its own."""
    for line in group.lines:
        if isinstance(line, Matmul) and line.weight_axes() is not None and mesh.divided(line.einsum.every) is None:
            for one in line.parameters() if EXPERTS in line.einsum.out or GATE in line.einsum.out else ():
                result = whole_bytes(size(axes, one.axes), bits)
                because = "Fe" if mesh.ep == 1 else "T"
                yield collective(
                    one.path, "all-reduce", "tp", "backward", "shared weights", group.count, result, mesh.tp, because
                )


def _summed(
    what: str, group: Group, mesh: Mesh, axes: Axes, bits: int, shares: int, train: bool
) -> Iterator[Collective]:
    """A token's experts are summed before the ranks' sums are. Backward: the gradient of the token, which all its
    experts read, and those of the weights, which multiply what is part of a sum."""
    if mesh.tp == 1:
        return
    over: Over = "tp" if mesh.ep == 1 else "ep"
    letter = "Fe" if mesh.ep == 1 else EXPERTS
    tokens = axes["B"] * axes["T"]
    stream = whole_bytes(tokens * axes["D"], bits)
    weights = whole_bytes(tokens * axes[ACTIVE], shares)
    passes: list[tuple[When, int]] = [("forward", stream)]
    passes += [("backward", stream), ("backward", weights)] if train else []
    for when, result in passes:
        yield collective(what, "all-reduce", over, when, "experts", group.count, result, mesh.tp, letter)


def _exchanged(
    what: str, group: Group, mesh: Mesh, axes: Axes, bits: int, shares: int, train: bool
) -> Iterator[Collective]:
    """Tokens go to their experts, and the results back. Ranks that share a batch take a slice of its tokens each, and
    gather the results: backward, the gradients of the slices. Where its tokens are divided, each has a slice."""
    tokens = axes["B"] * axes["T"]
    rows = rounded_up(tokens, mesh.tp)
    pairs = whole_bytes(rows * axes[ACTIVE] * axes["D"], bits)
    fullest = pairs * mesh.imbalance
    told = whole_bytes(axes[EXPERTS], COUNT_BITS)
    yield to_all(what, "forward", group.count, told, told, mesh.ep)
    for when in ("forward", "backward") if train else ("forward",):
        yield to_all(what, when, group.count, pairs, fullest, mesh.ep)
        yield to_all(what, when, group.count, fullest, pairs, mesh.ep)
        if mesh.tp > 1 and not mesh.sp:
            # A result is gathered as it was summed, in the dtype of the weights.
            backward = [(axes["D"], bits), (axes[ACTIVE], shares)]
            sizes = [(axes["D"], shares)] if when == "forward" else backward
            for width, width_bits in sizes:
                result = whole_bytes(mesh.tp * rows * width, width_bits)
                yield collective(what, "all-gather", "tp", when, "experts", group.count, result, mesh.tp, "T")
