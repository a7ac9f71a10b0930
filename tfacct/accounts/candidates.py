"""All instants of a training step that can be its fullest, whatever its context and its batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfacct.accounts.timeline import Instant, ends_of_stacks, sums
from tfacct.accounts.training import Step
from tfacct.ledger.einsum import Size


def candidates(step: Step) -> list[Instant]:
    """Every instant that can be the peak of a step of this layout, the first ones before those that only decide where
    they are fuller: at any sizes `peak` of them is that of the timeline."""
    whole = sums(step, together)
    ends = list(ends_of_stacks(step))
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
    many = max((len(size) for size in instant[2:] if isinstance(size, Each)), default=1)
    sizes = (size if isinstance(size, Each) else (size,) * many for size in instant[2:])
    return [Instant(*instant[:2], *each) for each in zip(*sizes, strict=True)]
