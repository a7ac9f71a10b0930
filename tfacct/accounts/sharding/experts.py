"""What experts send: their widths divided among the ranks of `tp`, or whole experts among those of `ep`.

Shazeer et al. (arXiv 1701.06538), section 3.1; Lepikhin et al., "GShard" (2006.16668), section 3.2. Which sums a rank
keeps to itself, and when tokens are cut into slices: transformers' MoeExpertsParallel, AllToAllEP and AllReduceEP.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.sends import Collective, Over, When, collective, to_all
from tfacct.accounts.sharding.shards import HERE
from tfacct.accounts.training import Step
from tfacct.ledger.einsum import Axes, rounded_up, whole_bytes
from tfacct.ledger.groups import Group
from tfacct.ledger.kept import Section
from tfacct.ledger.lines import ACTIVE, EXPERTS, Matmul

SLICE, RECEIVED = "Tsl", "Rx"
"""Tokens that a rank sends, those of all its sequences, and rows of tokens that the fullest rank receives."""
COUNT_BITS = 64
"""Width of the numbers of tokens that ranks tell one another, one for each expert."""


def of_experts(group: Group, mesh: Mesh, at: Axes, bits: int, shares: int, train: bool) -> Iterator[Collective]:
    """Collectives of a group's experts, in numbers of so many bits; `shares`: those of the weights that sum them."""
    last = [line for line in group.lines if isinstance(line, Matmul) and line.bank][-1:]
    if not last:
        return
    what = last[0].path.rpartition(".")[0]
    axes = group.bound(at)
    if mesh.ep == 1 or (mesh.ep == mesh.tp and not train):
        # The ranks have the same tokens: a sum over Fe, or over the experts of a token, is a part of the whole on each.
        yield from _summed(what, group, mesh, axes, bits, shares, train)
    else:
        yield from _exchanged(what, group, mesh, axes, bits, shares, train)


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
    gather the results: backward, the gradients of the slices."""
    tokens = axes["B"] * axes["T"]
    rows = rounded_up(tokens, mesh.tp)
    pairs = whole_bytes(rows * axes[ACTIVE] * axes["D"], bits)
    fullest = pairs * mesh.imbalance
    told = whole_bytes(axes[EXPERTS], COUNT_BITS)
    yield to_all(what, "forward", group.count, told, told, mesh.ep)
    for when in ("forward", "backward") if train else ("forward",):
        yield to_all(what, when, group.count, pairs, fullest, mesh.ep)
        yield to_all(what, when, group.count, fullest, pairs, mesh.ep)
        if mesh.tp > 1:
            # A result is gathered as it was summed, in the dtype of the weights.
            backward = [(axes["D"], bits), (axes[ACTIVE], shares)]
            sizes = [(axes["D"], shares)] if when == "forward" else backward
            for width, width_bits in sizes:
                result = whole_bytes(mesh.tp * rows * width, width_bits)
                yield collective(what, "all-gather", "tp", when, "experts", group.count, result, mesh.tp, "T")


def received(step: Step, mesh: Mesh) -> Step:
    """A step whose tokens go to the experts of other ranks, with the sizes of what a rank sends and receives."""

    def section(one: Section) -> Section:
        if EXPERTS not in one.axes:
            return one
        tokens = rounded_up(step.at["B"] * step.at["T"], mesh.tp)
        rows = ceil(tokens * one.axes[ACTIVE] * mesh.imbalance)
        own = {SLICE: tokens, RECEIVED: rows, HERE: one.axes[EXPERTS] // mesh.ep}
        return one._replace(axes={**one.axes, **own})

    return step._replace(run=step.run._replace(blocks=tuple(map(section, step.run.blocks))))
