"""Casts of weights and biases under autocast, which stay until the forward pass ends, and instants that they decide.

A gradient needs the cast of a weight, so a block that keeps its tensors keeps that too; of one that runs again it is
there in the forward pass, though nothing needs it, and so is that of any bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfacct.accounts.gradients import PRODUCT_BIAS
from tfacct.accounts.training import ENDS, kind_of
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import AGAIN, Moment, Section
from tfacct.ledger.storage import Width

if TYPE_CHECKING:
    from tfacct.accounts.timeline import Instant, Timeline

CHOOSE, CAST = "loss.choose", ".weight_cast"


class Casts:
    """What casts take in a step whose weights are `wide`."""

    def __init__(self, whole: Timeline, wide: Width) -> None:
        self.whole, self.step = whole, whole.step
        share = wide.bits // whole.step.pass_.bits
        apart = ((owner, size) for owner, size in whole.gradients.items() if owner[1].endswith(PRODUCT_BIAS))
        self.biases = {owner: size // share for owner, size in (*whole.biases.items(), *apart)}

    def forward(self) -> Iterator[tuple[int, Instant]]:
        """The loss, and the last block of each kind where blocks keep their inputs alone, by block."""
        whole, step = self.whole, self.step
        (moment,) = (moment for moment in whole.run.back.run.ahead if moment.at == CHOOSE)
        own, held = whole.inside_of(whole.run.back, moment)
        kept = whole.kept_front + whole.kept_blocks + own
        yield ENDS, whole.instant("loss, forward", moment.at, 0, kept, held + self.there() + whole.again)
        front = whole.run.front
        given = (line for line in front.run.kept if line.by == (AGAIN,))  # what waits, and is kept too
        beside = whole.held(front, whole.run.waiting) + sum(each.bytes for each in step.angles())
        beside -= whole.held(front, given) if step.checkpoint else 0
        for section in whole.run.blocks if step.checkpoint else ():
            number = section.numbers[-1]
            kept = whole.in_front[number] + step.bytes(section, [step.input])
            for moment in section.run.bare:
                held = whole.held(section, moment.held) + self.there(number, section, moment) + beside
                yield number, whole.instant(f"block {number:,}, forward", moment.at, 0, kept, held)

    def there(self, number: int | None = None, section: Section | None = None, moment: Moment | None = None) -> Size:
        """Bytes of the casts beside what is kept, at a moment of a block's forward pass or behind all."""
        bytes_: Size = 0
        for part in self.whole.run.blocks:
            behind = sum(number is None or other < number for other in part.numbers)
            bytes_ += behind * self._of(part) if behind else 0
        return bytes_ + (0 if section is None else self._of(section, moment))

    def of_biases(self, section: Section, moment: Moment | None = None) -> Size:
        """Bytes of the casts of biases that one block has made at a moment of its forward pass, or at its end."""
        kind = kind_of(section.numbers)
        return sum(self.biases.get((kind, operation), 0) for operation in _made(section, moment))

    def _of(self, section: Section, moment: Moment | None = None) -> Size:
        """The same, and of weights where a block keeps its input alone."""
        if not self.step.checkpoint:
            return self.of_biases(section, moment)
        owners = {operation.removesuffix(".weight") for operation in _made(section, moment)}
        casts = (line for line in section.run.kept if line.path.endswith(CAST))
        own = (line for line in casts if line.path.removesuffix(CAST) in owners)
        return self.of_biases(section, moment) + self.whole.held(section, own)


def _made(section: Section, moment: Moment | None) -> tuple[str, ...]:
    """Operations that have been run at a moment, that of the moment among them."""
    order = section.run.order
    return order if moment is None else order[: order.index(moment.at) + 1]
