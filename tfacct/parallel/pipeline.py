"""Pipeline parallelism: the layers of each stage, its part of a ledger, what it sends, and the bubble.

A stage sends the residual stream to the next one and its gradient back; the first and the last one sum the gradients of
a tied embedding.

Huang et al., "GPipe" (arXiv 1811.06965), section 2; Shoeybi et al., "Megatron-LM" (arXiv 1909.08053); Narayanan et al.
(2104.04473), section 2.2: a rank may have several stages, so that it waits less;
torch.distributed.pipelining.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple, Unpack

from tfacct.base.errors import UsageError, joined
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes, packed_bytes, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Parameter
from tfacct.parallel.collectives import Collective, When, collective
from tfacct.parallel.mesh import Mesh, check
from tfacct.parallel.rules import CollectiveOptions, collectives
from tfacct.parallel.shard_shapes import shard

ONCE = ("weights", "shared weights")
"""What is sent once per step, for any number of micro-batches: gradients summed over all."""


class Stage(NamedTuple):
    """Consecutive layers; the first stage has the embeddings, the last one the head."""

    blocks: range
    first: bool
    last: bool


def blocks_in(ledger: Ledger) -> int:
    """Number of layers."""
    return sum(len(group.numbers) for group in ledger.groups)


def divided(blocks: int, parts: int) -> list[range]:
    """Layers of each stage; if they do not divide evenly, the first stages have one more.

    >>> divided(7, 3)
    [range(0, 3), range(3, 5), range(5, 7)]
    """
    each, more = divmod(blocks, parts)
    ends = [part * each + min(part, more) for part in range(parts + 1)]
    return [range(*pair) for pair in pairwise(ends)]


def stages(blocks: int, mesh: Mesh) -> list[list[Stage]]:
    """The stages of each rank of `pp`. Raises UsageError for more stages than layers."""
    parts = mesh.pp * mesh.chunks
    if parts > blocks:
        problem, fewer = option("pp", mesh.pp), [option("pp", blocks // mesh.chunks)]
        if mesh.chunks > 1:
            problem += f" of {mesh.chunks:,} stages each"
        if mesh.chunks > 1 and blocks // mesh.pp > 1:
            fewer.append(option("pp_chunks", blocks // mesh.pp))
        problem += f" needs at least {parts:,} layers, not {blocks:,}"
        raise UsageError(problem, f"use {joined(fewer, 'or')}{',' if fewer[1:] else ''} or less")
    every = [Stage(numbers, number == 0, number == parts - 1) for number, numbers in enumerate(divided(blocks, parts))]
    return [every[rank :: mesh.pp] for rank in range(mesh.pp)]


def part(ledger: Ledger, rank_stages: Sequence[Stage]) -> Ledger:
    """The part of a ledger that some stages run."""

    def found() -> Ledger:
        instead = None if ledger.instead is None else part(ledger.instead, rank_stages)
        return Ledger(tuple(_groups(ledger, rank_stages)), instead)

    return ledger.once((part, *rank_stages), found)


def _groups(ledger: Ledger, rank_stages: Sequence[Stage]) -> Iterator[Group]:
    after = False
    for group in ledger.groups:
        if group.numbers:
            after = True
            numbers = [number for stage in rank_stages for number in within(group.numbers, stage)]
            if numbers:
                yield replace(group, count=len(numbers), numbers=numbers)
        elif any(stage.last if after else stage.first for stage in rank_stages):
            yield group


def within(numbers: Sequence[int], stage: Stage) -> Sequence[int]:
    """The numbers, in ascending order, of the layers in a stage."""
    return numbers[bisect_left(numbers, stage.blocks.start) : bisect_left(numbers, stage.blocks.stop)]


def distinct_stages(ledger: Ledger, every: Sequence[Sequence[Stage]]) -> dict[tuple[object, ...], list[int]]:
    """The ranks with equal stages: number of layers of each kind, embeddings, head."""
    found: dict[tuple[object, ...], list[int]] = {}
    for rank, rank_stages in enumerate(every):
        counts = (len(within(group.numbers, stage)) for group in ledger.groups for stage in rank_stages)
        found.setdefault((*counts, rank_stages[0].first, rank_stages[-1].last), []).append(rank)
    return found


def microbatches(mesh: Mesh, at: Axes, train: bool) -> int:
    """Number of micro-batches of a pass. Raises UsageError if they do not divide the batch or do not fit the
    schedule."""
    batch = int(at["B"])
    count = mesh.microbatches or (batch if train else 1)
    if batch % count:
        problem = f"{option('microbatches', count)} does not divide a batch of {batch:,}"
        raise UsageError(problem, f"give a multiple: {option('batch', count * rounded_up(batch, count))}")
    if train and mesh.chunks > 1 and count % max(1, count // mesh.pp):
        problem = f"{option('schedule', 'interleaved')} runs micro-batches in rounds of {mesh.pp:,} or more"
        raise UsageError(f"{problem}, and {count:,} is not a whole number of rounds", f"give a multiple of {mesh.pp:,}")
    return count


def stage_ledgers(ledger: Ledger, mesh: Mesh) -> list[Ledger]:
    """The ledger of each `pp` rank."""
    if mesh.pp == 1:
        return [ledger]
    return [part(ledger, rank_stages) for rank_stages in stages(blocks_in(ledger), mesh)]


def in_pipeline(
    ledger: Ledger,
    mesh: Mesh,
    at: Axes,
    bits: int,
    **how: Unpack[CollectiveOptions],
) -> list[list[Collective]]:
    """Collectives of each `pp` rank in a forward pass or a training step over all micro-batches. Raises UsageError for
    sizes that the mesh does not divide."""
    check(ledger, mesh, at)
    train = how.get("train", False)
    times = microbatches(mesh, at, train)
    each = {**at, "B": at["B"] // times}
    inside = replace(mesh, pp=1, chunks=1)
    table = _tied(ledger) if train else None
    every = stages(blocks_in(ledger), mesh)
    found: dict[int, list[Collective]] = {}
    for alike in distinct_stages(ledger, every).values():
        lines = staged(collectives(part(ledger, every[alike[0]]), inside, each, bits, **how))
        repeats = [one if one.of in ONCE else repeated(one, times) for one in lines]
        for rank in alike:
            if 0 < rank - 1 in alike and rank < mesh.pp - 1:  # between two others, like the one before
                found[rank] = found[rank - 1]
                continue
            ends = [_summed(*table, mesh, how.get("reduced") or bits)] if table and rank in (0, mesh.pp - 1) else []
            found[rank] = [*repeats, *_sent(ledger, every[rank], mesh, each, bits, times, train), *ends]
    return [found[rank] for rank in range(mesh.pp)]


def staged(lines: Iterable[Collective]) -> Iterator[Collective]:
    """Collectives of a stage: its weights stay gathered until the last backward pass, as in torchtitan."""
    return (one for one in lines if (one.over, one.when, one.kind) != ("fsdp", "backward", "all-gather"))


def repeated(one: Collective, times: int) -> Collective:
    """The same for `times` micro-batches."""
    return one._replace(calls=times * one.calls, bytes=times * one.bytes, sent=times * one.sent)


def _sent(
    ledger: Ledger, rank_stages: Sequence[Stage], mesh: Mesh, at: Axes, bits: int, times: int, train: bool
) -> Iterator[Collective]:
    """Sends of the residual stream to the next stages, and of its gradients back."""
    width = next(group.axes["D"] for group in ledger.groups if group.numbers)
    tokens = at["T"] // (mesh.sequence_shards * (mesh.tp if mesh.sp else 1))
    each = packed_bytes(at["B"] * tokens * width, bits)
    passes: list[tuple[When, int]] = [("forward", sum(not stage.last for stage in rank_stages))]
    passes += [("backward", sum(not stage.first for stage in rank_stages))] if train else []
    for when, others in passes:
        calls = times * others
        if calls:
            yield Collective("blocks", "send", "pp", when, "stream", calls, calls * each, calls * each, "L")


def _tied(ledger: Ledger) -> tuple[Parameter, Axes] | None:
    """The embedding tied to the head; None if there is none."""
    ends = [group for group in ledger.groups if not group.numbers]
    weights = [{one.path: (one, group.axes) for line in group.lines for one in line.parameters()} for group in ends]
    both = [one for path, one in weights[0].items() if any(path in other for other in weights[1:])] if weights else []
    return both[0] if both else None


def _summed(table: Parameter, axes: Axes, mesh: Mesh, bits: int) -> Collective:
    """The all-reduce of the gradient of an embedding stored on two stages."""
    size = packed_bytes(shard(table, axes, mesh).elements, bits)
    return collective(table.path, "all-reduce", "pp", "backward", "shared weights", 1, size, 2, "L")


BUBBLE = {
    "gpipe": "(P − 1)/M",
    "1f1b": "(P − 1)/M",
    "interleaved": "(P − 1)/(V · M)",
    "zero-bubble": "(P − 1) · (F + B − W)/(M · (F + B + W))",
}
"""Waiting time of a stage relative to its compute time: P stages, M micro-batches, V stages of a rank. F, B and W:
time of a forward pass, of the gradients of inputs, and of those of weights."""


def bubble(mesh: Mesh, times: int) -> Fraction | None:
    """Value of the formula; None if it contains times."""
    if mesh.schedule == "zero-bubble":
        return None
    return Fraction(mesh.pp - 1, times * mesh.chunks)


def waits_facts(mesh: Mesh, times: int, train: bool) -> dict[str, Any]:
    """Waiting time of stages for the JSON: a formula, and its value if it contains no times."""
    ratio = bubble(mesh, times) if train else None
    formula = BUBBLE[mesh.schedule] if train else None
    return {"microbatches": times, "bubble": formula, "bubble_ratio": None if ratio is None else float(ratio)}
