"""Casts of weights and biases under autocast, which stay until the forward pass ends, and instants that they decide.

A gradient needs the cast of a weight, so a block that keeps its tensors keeps that too; of one that runs again it is
there in the forward pass, though nothing needs it, and so is that of any bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tfacct.accounts.inside import Within
from tfacct.accounts.step_sums import running
from tfacct.accounts.training import ENDS
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import AGAIN, Section

if TYPE_CHECKING:
    from tfacct.accounts.timeline import Instant, Timeline

CHOOSE = "loss.choose"


class Casts:
    """What casts take in a step. Blocks say themselves what they cast."""

    def __init__(self, whole: Timeline) -> None:
        self.whole, self.step = whole, whole.step
        each = [whole.insides[id(section)].all_casts(kept=self.step.checkpoint) for section in whole.run.blocks]
        front = whole.insides[id(whole.run.front)].all_casts(kept=False)
        self.in_front = running(whole.kinds, each, front)
        self.all = front + sum([section.count * one for section, one in zip(whole.run.blocks, each, strict=True)])

    def forward(self) -> Iterator[tuple[int, Instant]]:
        """The loss, and the last block of each kind where blocks keep their inputs alone, by block."""
        whole, step = self.whole, self.step
        behind, kept = whole.insides[id(whole.run.back)], whole.kept_front + whole.kept_blocks
        most = behind.most_ahead + self.all + whole.again
        for at, own, held, *_ in () if whole.below(whole.ahead_of(ENDS), kept, most) else behind.ahead():
            if at == CHOOSE or (step.checkpoint and behind.run.casts is not None):
                name = "loss, forward" if at == CHOOSE else "head, forward"
                yield ENDS, whole.instant(name, at, 0, kept + own, held + self.all + whole.again)
        if step.checkpoint:
            yield from self._blocks()

    def _blocks(self) -> Iterator[tuple[int, Instant]]:
        """The last block of each kind, of which no more is kept than what it reads."""
        whole, step, front = self.whole, self.step, self.whole.run.front
        given = (line for line in front.run.kept if line.by == (AGAIN,))  # what waits, and is kept too
        beside = whole.waiting + sum([each.bytes for each in whole.beside.angles]) - whole.held(front, given)
        for section in whole.run.blocks:
            number = section.numbers[-1]
            kept = whole.in_front[number] + whole.insides[id(section)].sizes.bytes(step.input)
            inside = whole.insides[id(section)]
            most = inside.most_bare + self.most_beside(number, section) + beside
            if whole.below(whole.ahead_of(number), kept, most):
                continue
            for at, _, held, *_ in whole.decides(self.beside(number, section, inside.bare())):
                yield number, whole.instant(f"block {number:,}, forward", at, 0, kept, held + beside)

    def beside(self, number: int, section: Section, found: Iterable[Within]) -> list[Within]:
        """Moments of a block's forward pass beside the casts that are there."""
        inside, front = self.whole.insides[id(section)], self.in_front[number]
        made, place = inside.casts(kept=self.step.checkpoint), inside.place
        return [(at, kept, held + front + made[place[at]], new, after) for at, kept, held, new, after in found]

    def most_beside(self, number: int, section: Section) -> Size:
        """Bytes of the casts that are there at the end of a block's forward pass, when most are."""
        return self.in_front[number] + self.whole.insides[id(section)].all_casts(kept=self.step.checkpoint)

    def unsaved(self, section: Section) -> Size:
        """Bytes of all casts of a block that no line keeps."""
        return self.whole.insides[id(section)].all_casts(kept=False)

    def again(self, section: Section, found: Iterable[Within]) -> list[Within]:
        """Moments of a block that runs again beside the casts of biases that it has made."""
        inside = self.whole.insides[id(section)]
        made, place = inside.casts(kept=False), inside.place
        return [(at, kept, held + made[place[at]], new, after) for at, kept, held, new, after in found]
