"""Stages of a pipeline: which blocks each rank of `pp` has, and its part of a ledger.

Huang et al., "GPipe" (arXiv 1811.06965), section 2; Narayanan et al. (2104.04473), section 2.2: a rank may have several
stages, every so many blocks, so that it waits less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes
from tfacct.ledger.groups import Group, Ledger
from tfacct.parallel.mesh import Mesh


class Stage(NamedTuple):
    """Blocks in a row, with the tables in front of them or the head behind, where they are the first or the last."""

    blocks: range
    first: bool
    last: bool


def blocks_in(ledger: Ledger) -> int:
    """Number of blocks."""
    return sum(len(group.numbers) for group in ledger.groups)


def divided(blocks: int, parts: int) -> list[range]:
    """Blocks of each stage: where they are not as many everywhere, the first stages have one more.

    >>> divided(7, 3)
    [range(0, 3), range(3, 5), range(5, 7)]
    """
    each, more = divmod(blocks, parts)
    ends = [part * each + min(part, more) for part in range(parts + 1)]
    return [range(*pair) for pair in pairwise(ends)]


def stages(blocks: int, mesh: Mesh) -> list[list[Stage]]:
    """The stages of each rank of `pp`, its first one first. Raises UsageError for more stages than blocks."""
    parts = mesh.pp * mesh.chunks
    if parts > blocks:
        said = f"{option('pp', mesh.pp)}" + (f" of {mesh.chunks:,} stages each" if mesh.chunks > 1 else "")
        raise UsageError(f"{said} does not divide L = {blocks:,} (blocks)", f"at most {blocks // mesh.chunks:,} ranks")
    every = [Stage(own, number == 0, number == parts - 1) for number, own in enumerate(divided(blocks, parts))]
    return [every[rank :: mesh.pp] for rank in range(mesh.pp)]


def part(ledger: Ledger, own: Sequence[Stage]) -> Ledger:
    """The lines that some stages run."""
    key = "part", *own
    if key not in ledger.known:
        instead = None if ledger.instead is None else part(ledger.instead, own)
        ledger.known[key] = Ledger(tuple(_groups(ledger, own)), instead)
    found: Ledger = ledger.known[key]
    return found


def _groups(ledger: Ledger, own: Sequence[Stage]) -> Iterator[Group]:
    behind = False
    for group in ledger.groups:
        if group.numbers:
            behind = True
            numbers = [number for stage in own for number in _within(group, stage)]
            if numbers:
                yield replace(group, count=len(numbers), numbers=numbers)
        elif any(stage.last if behind else stage.first for stage in own):
            yield group


def _within(group: Group, stage: Stage) -> Sequence[int]:
    """Numbers of a group's blocks that are in a stage."""
    numbers = group.numbers
    return numbers[bisect_left(numbers, stage.blocks.start) : bisect_left(numbers, stage.blocks.stop)]


def sorts(ledger: Ledger, every: Sequence[Sequence[Stage]]) -> dict[tuple[object, ...], list[int]]:
    """Ranks whose stages hold as much as one another's: blocks of each kind, tables, the head."""
    found: dict[tuple[object, ...], list[int]] = {}
    for rank, own in enumerate(every):
        counts = (len(_within(group, stage)) for group in ledger.groups for stage in own)
        found.setdefault((*counts, own[0].first, own[-1].last), []).append(rank)
    return found


def microbatches(mesh: Mesh, at: Axes, train: bool) -> int:
    """Number of microbatches of a pass. Raises UsageError where they do not divide the batch, or do not go with the
    schedule."""
    batch = int(at["B"])
    count = mesh.microbatches or (batch if train else 1)
    if batch % count:
        said = f"{option('microbatches', count)} does not divide a batch of {batch:,}"
        raise UsageError(said, f"give a multiple: {option('batch', -(-batch // count) * count)}")
    if train and mesh.chunks > 1 and count % max(1, count // mesh.pp):
        said = f"{option('schedule', 'interleaved')} takes microbatches in rounds of {mesh.pp:,} or more"
        raise UsageError(f"{said}, and {count:,} are no whole number of them", f"give a multiple of {mesh.pp:,}")
    return count
