"""Collectives of attention in context parallelism: keys and values reach the queries of all ranks, or each rank gets
some heads of all tokens.

Ring: Liu et al. (arXiv 2310.01889), as torch's experimental context_parallel runs it: each pass sends the keys and
values of a rank around all others, and their gradients, summed in fp32, one hop further, back to that rank. Gather:
"The Llama 3 Herd of Models" (2407.21783), section 3.3.2; rules 2 and 3 give the same. Heads: Jacobs et al., "DeepSpeed
Ulysses" (2309.14509), section 3."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.ledger.einsum import Axes, AxisNames, packed_bytes, size
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Matmul
from tfacct.parallel.collectives import Collective, Kind, When, collective
from tfacct.parallel.mesh import Mesh

SUMMED = 32
"""Bits per element in which a ring sums gradients of keys and values."""


def of_context(group: Group, mesh: Mesh, at: Axes, bits: int, train: bool) -> Iterator[Collective]:
    """Collectives of a group's attention, `at` the tokens of one rank."""
    products = [line for line in group.lines if isinstance(line, Matmul) and line.weight_axes() is None]
    attention = [line for line in products if {"T", "S"} <= {*line.einsum.every}]
    if not attention:
        return
    scores, values = attention
    axes = {**group.axes, **at, "S": at["T"]}
    axes |= {"K": mesh.shard_size("K", group.axes["K"])}
    if mesh.ulysses > 1:
        yield from _of_heads(scores, values, group, mesh, axes, bits, train)
    if mesh.cp > 1 and mesh.cp_method == "ring":
        yield from _around(scores, values, group, mesh, axes, bits, train)
    elif mesh.cp > 1:
        yield from _gathered(scores, values, group, mesh, axes, bits, train)


def _around(
    scores: Matmul, values: Matmul, group: Group, mesh: Mesh, axes: Axes, bits: int, train: bool
) -> Iterator[Collective]:
    """Keys and values in one message from each rank to the next; again in the backward pass, with their gradients."""
    both = size(axes, scores.einsum.right) + size(axes, values.einsum.right)

    def sent(when: When, hops: int, width: int, because: str) -> Collective:
        calls, each = group.count * hops, packed_bytes(both, width)
        return Collective(scores.path, "send", "cp", when, "keys", calls, calls * each, calls * each, because)

    yield sent("forward", mesh.cp - 1, bits, "S")
    if train:
        yield sent("backward", mesh.cp - 1, bits, "S")
        yield sent("backward", mesh.cp, max(bits, SUMMED), "T")


def _gathered(
    scores: Matmul, values: Matmul, group: Group, mesh: Mesh, axes: Axes, bits: int, train: bool
) -> Iterator[Collective]:
    """All-gathers of keys and of values; again in the backward pass, and reduce-scatters of their gradients."""
    steps: list[tuple[Kind, When, str]] = [("all-gather", "forward", "S")]
    steps += [("all-gather", "backward", "S"), ("reduce-scatter", "backward", "T")] if train else []
    for kind, when, because in steps:
        for line in (scores, values):
            shard_bytes = packed_bytes(size(axes, line.einsum.right), bits)
            result = mesh.cp * shard_bytes if kind == "all-gather" else shard_bytes
            yield collective(line.path, kind, "cp", when, "keys", group.count, result, mesh.cp, because)


def _of_heads(
    scores: Matmul, values: Matmul, group: Group, mesh: Mesh, axes: Axes, bits: int, train: bool
) -> Iterator[Collective]:
    """All-to-alls of queries, keys and values to the rank of their heads, and of the result back to its tokens'
    rank."""
    moved: list[tuple[str, AxisNames]] = [
        (scores.path, scores.einsum.left),
        (scores.path, scores.einsum.right),
        (values.path, values.einsum.right),
        (values.path, values.einsum.out),
    ]
    for when in ("forward", "backward") if train else ("forward",):
        for what, operand in moved:
            each = packed_bytes(size(axes, operand), bits)
            sent = each // mesh.ulysses * (mesh.ulysses - 1)
            calls = group.count
            yield Collective(what, "all-to-all", "ulysses", when, "heads", calls, calls * each, calls * sent, "K")
