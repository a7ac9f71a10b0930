"""All instants of a training step that can be its fullest, whatever its context and its batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tfacct.accounts.timeline import Instant, Timeline, ends_of_stacks, sums
from tfacct.accounts.training import Step
from tfacct.ledger.einsum import Size


def candidates(step: Step) -> list[Instant]:
    """Every instant that can be the peak of a step of this layout, the first ones before those that only decide where
    they are fuller: at any sizes `peak` of them is that of the timeline."""
    whole = sums(step, together)
    ends = list(ends_of_stacks(whole.step))
    inside = (instant for _, instant in whole.inside_blocks(ends))
    return [each for instant in (*whole.always(ends), *inside) for each in _apart(instant)]


class Each(tuple[Size, ...]):
    """Sizes of several instants; what is added is added to each."""

    __slots__ = ()

    def __add__(self, more: Any) -> Any:
        return Each(one + more for one in self)


def together(instants: Iterable[Instant]) -> Instant:
    """Several instants as one, whose sizes are those of each."""
    every = [each for instant in instants for each in _apart(instant)]
    return Instant(every[0].name, "", *(Each(sizes) for sizes in zip(*(each[2:] for each in every), strict=True)))


def _apart(instant: Instant) -> list[Instant]:
    """The instants that one stands for."""
    several = [len(size) for size in instant[2:] if isinstance(size, Each)]
    if not several:  # nearly all of them
        return [instant]
    many = max(several)
    sizes = (size if isinstance(size, Each) else (size,) * many for size in instant[2:])
    return [Instant(*instant[:2], *each) for each in zip(*sizes, strict=True)]


def corners(whole: Timeline, numbers: Sequence[int]) -> list[int]:
    """Those of some blocks of one kind beside which most can be kept and done.

    What is there beside a block is linear in how many blocks of each kind are in front of it, so of blocks that the
    same angles are gone for one on the hull of these numbers has the most.
    """
    blocks = whole.run.blocks
    passed, in_front = [0] * len(blocks), {}
    for number, kind in sorted((number, kind) for kind, part in enumerate(blocks) for number in part.numbers):
        in_front[number] = tuple(passed)
        passed[kind] += 1
    alike: dict[tuple[bool, ...], list[int]] = {}
    for number in numbers:
        alike.setdefault(tuple(number < angles.first for angles in whole.angles), []).append(number)
    found = (_hull({in_front[number]: number for number in group}) for group in alike.values())
    return sorted(number for group in found for number in group)


def _hull(places: dict[tuple[int, ...], int]) -> list[int]:
    """Numbers at the corners of the hull of their places; all of them in more than two directions."""
    points = sorted(places)
    if len(points[0]) > 2 or len(points) <= 2:
        return list(places.values())
    if len(points[0]) == 1:
        return [places[points[0]], places[points[-1]]]
    chains: list[list[tuple[int, ...]]] = []
    for way in (points, points[::-1]):
        chain: list[tuple[int, ...]] = []
        for point in way:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        chains.append(chain)
    return [places[point] for point in dict.fromkeys(chains[0] + chains[1])]


def _turn(one: Sequence[int], then: Sequence[int], last: Sequence[int]) -> int:
    """Above 0 where three points turn left."""
    return (then[0] - one[0]) * (last[1] - one[1]) - (then[1] - one[1]) * (last[0] - one[0])
