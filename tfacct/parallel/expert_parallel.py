"""Collectives of experts: `tp` shards their width, or each `ep` rank has whole experts.

Shazeer et al. (arXiv 1701.06538), section 3.1; Lepikhin et al., "GShard" (2006.16668), section 3.2. Which sums stay
on a rank, and when tokens are sliced: transformers' MoeExpertsParallel, AllToAllEP and AllReduceEP.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, divided, packed_bytes, rounded_up, size
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import ACTIVE, EXPERTS, GATE, Matmul
from tfacct.parallel.collectives import Collective, Over, When, collective, to_all
from tfacct.parallel.mesh import Mesh

COUNT_BITS = 64
"""Bits per token count of an expert; ranks exchange these counts first."""


def of_experts(group: Group, mesh: Mesh, at: Axes, bits: int, shares: int, train: bool) -> Iterator[Collective]:
    """Collectives of a group's experts, with `bits` per element; `shares`: bits of the routing weights."""
    what = expert_module(group)
    if what is None:
        return
    axes = group.bound(at)
    if mesh.sp and train:
        yield from _of_routers(group, mesh, axes, bits)
    if mesh.sp and mesh.ep == 1:
        yield from _scattered(what, group, mesh, axes, bits, train)
    elif mesh.ep == 1 or (mesh.ep == mesh.tp and not train and not mesh.sp):
        # All ranks have the same tokens, and each has a partial sum over Fe or over the experts of a token.
        yield from _summed(what, group, mesh, axes, bits, shares, train)
    else:
        yield from _exchanged(what, group, mesh, axes, bits, shares, train)


def between(group: Group, mesh: Mesh) -> str | None:
    """The module with experts, router and shared expert between one all-gather of the residual stream and one
    reduce-scatter of their sum; None if there is none."""
    if not mesh.sp or mesh.ep > 1:
        return None
    what = expert_module(group)
    return None if what is None else f"{paths.module_of(what)}."


def expert_module(group: Group) -> str | None:
    """The module of a group's experts; None if it has none."""

    def found() -> str | None:
        grouped = (line for line in reversed(group.lines) if isinstance(line, Matmul) and line.expert_axis)
        return next((paths.module_of(line.path) for line in grouped), None)

    return group.cached_lines.once(expert_module, found)


def _scattered(what: str, group: Group, mesh: Mesh, axes: Axes, bits: int, train: bool) -> Iterator[Collective]:
    """With a sharded residual stream, experts, router and shared expert read its tokens after one all-gather, and their
    outputs are parts of one sum. So are the gradients in the backward pass: the router's are linear in those of the
    routing weights."""
    tokens = axes["B"] * axes["T"]
    whole, part = (packed_bytes(divided(tokens * axes["D"], ranks), bits) for ranks in (1, mesh.tp))
    for when in ("forward", "backward") if train else ("forward",):
        yield collective(what, "all-gather", "tp", when, "experts", group.count, whole, mesh.tp, "T")
        yield collective(what, "reduce-scatter", "tp", when, "experts", group.count, part, mesh.tp, "Fe")


def _of_routers(group: Group, mesh: Mesh, axes: Axes, bits: int) -> Iterator[Collective]:
    """All-reduces of the gradients of router and gates, which every rank has. They are partial sums over the experts'
    width, or over tokens if each rank has different tokens."""
    for line in group.lines:
        if isinstance(line, Matmul) and line.weight_axes() is not None and mesh.sharded_axis(line.einsum.every) is None:
            for one in line.parameters() if EXPERTS in line.einsum.out or GATE in line.einsum.out else ():
                result = packed_bytes(size(axes, one.axes), bits)
                because = "Fe" if mesh.ep == 1 else "T"
                yield collective(
                    one.path, "all-reduce", "tp", "backward", "shared weights", group.count, result, mesh.tp, because
                )


def _summed(
    what: str, group: Group, mesh: Mesh, axes: Axes, bits: int, shares: int, train: bool
) -> Iterator[Collective]:
    """All-reduce of each token's sum over the experts of a rank. Backward: all-reduces of the gradient of the token,
    which all its experts read, and of the routing weights, which multiply partial sums."""
    if mesh.tp == 1:
        return
    over: Over = "tp" if mesh.ep == 1 else "ep"
    contracted = "Fe" if mesh.ep == 1 else EXPERTS
    tokens = axes["B"] * axes["T"]
    stream = packed_bytes(tokens * axes["D"], bits)
    weights = packed_bytes(tokens * axes[ACTIVE], shares)
    passes: list[tuple[When, int]] = [("forward", stream)]
    passes += [("backward", stream), ("backward", weights)] if train else []
    for when, result in passes:
        yield collective(what, "all-reduce", over, when, "experts", group.count, result, mesh.tp, contracted)


def _exchanged(
    what: str, group: Group, mesh: Mesh, axes: Axes, bits: int, shares: int, train: bool
) -> Iterator[Collective]:
    """All-to-alls of tokens to their experts, and of the results back. Ranks with the same batch send one slice of its
    tokens each and gather the results, or the gradients of the slices in the backward pass. With a sharded residual
    stream, each rank already has a slice."""
    tokens = axes["B"] * axes["T"]
    rows = rounded_up(tokens, mesh.tp)
    pairs = packed_bytes(rows * axes[ACTIVE] * axes["D"], bits)
    fullest = pairs * mesh.imbalance
    counts = packed_bytes(axes[EXPERTS], COUNT_BITS)
    yield to_all(what, "forward", group.count, counts, counts, mesh.ep)
    for when in ("forward", "backward") if train else ("forward",):
        yield to_all(what, when, group.count, pairs, fullest, mesh.ep)
        yield to_all(what, when, group.count, fullest, pairs, mesh.ep)
        if mesh.tp > 1 and not mesh.sp:
            # A result is gathered in the dtype in which it was summed, that of the routing weights.
            backward = [(axes["D"], bits), (axes[ACTIVE], shares)]
            sizes = [(axes["D"], shares)] if when == "forward" else backward
            for width, width_bits in sizes:
                result = packed_bytes(mesh.tp * rows * width, width_bits)
                yield collective(what, "all-gather", "tp", when, "experts", group.count, result, mesh.tp, "T")
