"""An instant of a training step: the bytes that are alive there, and the one that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from tfacct.ledger.einsum import Size


class Instant(NamedTuple):
    """What is alive at one instant, in bytes. `operation`: what runs there. `gathered`: weights that other ranks
    store."""

    name: str
    operation: str
    weights: Size
    states: Size
    gradients: Size
    kept: Size
    held: Size
    gathered: Size = 0

    def beside(self, name: str = "", weights: Size = 0, gradients: Size = 0, kept: Size = 0, held: Size = 0) -> Instant:
        """The same beside more of each, under another name if one is given."""
        at, own, states, finished, lines, others, gathered = self[1:]
        there = own + weights, states, finished + gradients, lines + kept, others + held, gathered
        return Instant(name or self.name, at, *there)

    @property
    def total(self) -> Size:
        """Bytes of all together."""
        return self.weights + self.states + self.gradients + self.kept + self.held + self.gathered


Fullest: TypeAlias = Callable[[Iterable[Instant]], Instant]
"""What stands for some instants of which one decides."""


def peak(instants: Iterable[Instant]) -> Instant:
    """The instant that decides, the first of those that are as full."""
    first, *others = instants
    return max(first, *others, key=lambda instant: int(instant.total)) if others else first
