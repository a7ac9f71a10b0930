"""A training step: its pass, its weights, and the bytes that it keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.kept import AGAIN, TURNS, Kept, Pass, Section
from tfacct.ledger.storage import Width


class Angles(NamedTuple):
    """Angles: the operation that needs them, their bytes, and the first block that does, with which they go."""

    turn: str
    bytes: Size
    first: int


class Step(NamedTuple):
    """A training step to account for: the pass, the model's ledger, and how its tensors are stored.

    `states`: bytes that the optimizer keeps. `update`: bytes that it holds while it updates. `checkpoint`: blocks keep
    their inputs alone, and are run again. `accumulate`: the gradients of earlier batches are there. `holds_logits`: the
    caller keeps the logits. `unsure`: how many bytes less it may hold while it updates, by the order of the parameters.
    """

    run: Pass
    ledger: Ledger
    at: Axes
    pass_: Width
    states: Size
    update: Size = 0
    checkpoint: bool = False
    accumulate: bool = False
    holds_logits: bool = False
    unsure: Size = 0

    @property
    def hands(self) -> bool:
        """True if something is run again, and is handed tensors for that."""
        return self.checkpoint or bool(self.run.again)

    def bytes(self, section: Section, lines: Iterable[Kept]) -> Size:
        """Bytes of some lines of one section."""
        return sum(line.bytes({**section.axes, **self.at}, self.pass_) for line in lines)

    @property
    def weights(self) -> Size:
        """Bytes of the parameters, and of the buffers and the batch, which stay as long."""
        stay = self.bytes(self.run.front, self.run.buffers)
        return sum(self.pass_.bytes(t.count * t.elements) for t in self.ledger.tensors()) + stay

    def lines_of(self, section: Section) -> Iterator[Kept]:
        """Tensors that one block of a section keeps, or what stands in front of the blocks or behind them."""
        if self.checkpoint and section.numbers:
            return iter((INPUT,))
        elsewhere = TURNS if self.hands else (AGAIN,)
        return (line for line in section.run.kept if not any(operation in line.by for operation in elsewhere))

    def kept_in(self, section: Section) -> Size:
        """Bytes of these."""
        return self.bytes(section, self.lines_of(section))

    def closures(self, block: int | None = None) -> Size:
        """Bytes that checkpointed blocks are handed to be run again, which autograd does not see: angles, positions,
        masks. With `block`: those still there while it runs backwards."""
        if not self.hands:
            return 0
        axes = {**self.run.front.axes, **self.at}
        angles = sum(each.bytes for each in self.angles() if block is None or each.first <= block)
        there = (held for held, first in self.run.handed if block is None or first <= block)
        return angles + sum(held.bytes(axes, self.pass_) for held in there)

    def angles(self) -> Iterator[Angles]:
        """The angles that blocks turn queries and keys by."""
        front = self.run.front
        for turn in TURNS:
            first = [part.numbers[0] for part in self.run.blocks if turn in part.run.order and part.numbers]
            if first:
                lines = (line for line in front.run.kept if turn in line.by)
                yield Angles(turn, self.bytes(front, lines), min(first))

    def kept(self) -> Size:
        """Bytes that the whole forward pass keeps."""
        return sum(section.count * self.kept_in(section) for section in self.run.sections)


INPUT = Kept("blocks.*.in", "B T D", by=(AGAIN,))
"""All that a checkpointed block keeps."""
