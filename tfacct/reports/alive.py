"""The instants of a step of the reference model, as its own code runs over shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from tfacct.accounts.instants import Instant, peak
from tfacct.accounts.step_sums import BATCH
from tfacct.accounts.timeline import LOSS
from tfacct.accounts.training import Step
from tfacct.architecture.parts import Patches
from tfacct.architecture.transformer import Transformer
from tfacct.ledger.workload import Workload
from tfacct.reference.over_shapes import BLOCKS, ENCODER, END, FRONT, Fullest, Place, run
from tfacct.reference.over_shapes import LOSS as OF_LOSS


def instants(shape: Transformer, step: Step, dtype: str, work: Workload) -> list[Instant]:
    """The instants of a step, in their order: every end, each kind's last and first block, and the fullest of all."""
    found = run(shape, dtype, int(work.batch), int(work.tokens), int(work.source))
    told = _Told(step, found)
    always = list(told.always(shape))
    inside = [told.at(at) for at in found if at.number is not None or not at.backwards or at.part == ENCODER]
    fullest = peak([*always, *inside])
    if fullest in always:
        return always
    before = [one for one in always if one.gradients <= fullest.gradients] if fullest.gradients else []
    return [*before, fullest, *always[len(before) :]]


class _Told:
    """Instants of a run, by their places."""

    def __init__(self, step: Step, found: Mapping[Place, Fullest]) -> None:
        self.step, self.found = step, found
        self.weights = sum(step.pass_.bytes(each.count * each.elements) for each in step.ledger.tensors())
        self.end = found[Place(False, END)]

    def always(self, shape: Transformer) -> Iterator[Instant]:
        yield self.at(Place(False, END))
        yield self.at(Place(True, OF_LOSS))
        yield from self._most("head, backward", "head")
        ends = {end for numbers in shape.numbers() for end in (numbers[0], numbers[-1])}
        yield from (self.at(Place(True, BLOCKS, number)) for number in sorted(ends, reverse=True))
        if shape.encoder is not None and not shape.encoder.given:
            last = sum(int(stack.count) for stack in shape.encoder.stacks) - 1
            yield from (self.at(Place(True, ENCODER, number)) for number in dict.fromkeys((last, 0)))
        yield from self._most("patches, backward" if isinstance(shape.embed, Patches) else "table, backward", FRONT)
        yield self._update()

    def _most(self, name: str, part: str) -> Iterator[Instant]:
        """The fullest of what stands in front of the blocks, or behind."""
        there = [at for at in self.found if at.backwards and at.part == part and at.number is None]
        if there:
            yield peak(map(self.at, there))._replace(name=name)

    def at(self, at: Place) -> Instant:
        """What is alive where a part is fullest."""
        most = self.found[at]
        kept = self.step.kept() - (self.end.kept - most.kept)
        held = most.bytes - self.weights - most.gradients - kept
        return Instant(_name(at), "", self.weights, self.step.states, most.gradients, kept, held)

    def _update(self) -> Instant:
        front = self.step.run.front
        batch = sum(self.step.bytes(front, [line]) for line in front.run.kept if line.path in BATCH)
        done = self.found[Place(True, END)].gradients
        return Instant("optimizer step", "", self.weights, self.step.states, done, batch, self.step.update)


def _name(at: Place) -> str:
    if at.part == END:
        return "forward ends"
    if at.part == OF_LOSS and at.backwards:
        return LOSS
    way = "backward" if at.backwards else "forward"
    if at.number is None:
        return f"{at.part}, {way}"
    return "".join(chain("encoder, " if at.part == ENCODER else "", f"block {at.number:,}, {way}"))
