"""Sums that the instants of a training step share: what is kept in front of each block, and what is done behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from tfacct.accounts.gradients import HEAD, gradients_of
from tfacct.accounts.inside import Inside, Insides, Within, ran_again
from tfacct.accounts.training import INPUT, Step, kind_of
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Section, bytes_each
from tfacct.ledger.places import Reached


class StepSums:
    """Bytes of a step: of all together, and beside and inside its blocks. `known`: sections of other stages of its
    pass."""

    def __init__(self, step: Step, known: Insides | None = None) -> None:
        asked = step
        blocks = tuple([part for section in step.run.blocks for part in section.apart()])
        self.step = step = step._replace(run=step.run._replace(blocks=blocks))
        self.run = step.run
        self.insides: dict[int, Inside] = {}
        known = known or Insides()
        for section in self.run.sections:
            again = step.checkpoint and bool(section.numbers)
            self.insides[id(section)] = known.of(section, step.at, step.pass_, again=again)
        self.handed: dict[int, Size] = {}  # by the block
        self.made: dict[int, tuple[Sequence[Size], Sequence[Size]]] = {}  # gradients, by the section
        self.weights = step.weights
        # Its gradient takes as many; a stage of a pipeline that is not the last has none.
        self.loss = bytes_each(self.run.loss, step.stored) if self.run.back.run.moments else 0
        self.turns = tuple(step.angles())
        self.angles = () if step.hands else self.turns
        self.again = step.closures(None, self.turns)
        self.stream = self.held(self.run.front, (step.input,))
        self.kept_front = self.kept_in(self.run.front)
        self.inside = [self.kept_in(section) for section in self.run.blocks]
        self.kept_blocks = sum(part.count * kept for part, kept in zip(self.run.blocks, self.inside, strict=True))
        own = self.kept_front + self.kept_blocks + self.kept_in(self.run.back) + self.again
        self.flying = asked.beside(own)
        found = gradients_of(step)
        self.known_gradients = found
        self.gradients, self.biases, self.tied, self.all_gradients = found.of, found.biases, found.tied, found.all
        self.order = in_order(*[tuple(part.numbers) for part in self.run.blocks])
        done = self.finishes(self.run.back)
        self.in_front = running(self.order, self.inside, self.kept_front)
        self.done_behind = running(self.order[::-1], [self.left(part) for part in self.run.blocks], done)
        self.last, behind = self.order[-1] if self.order else (0, 0)
        self.last_block = self.insides[id(self.run.blocks[behind])] if self.order else None
        self.collected = tuple(self._collected())
        self.all_collected = sum([bytes_ for _, bytes_ in self.collected])
        others, own = step.rows
        self.other_rows = found.rows * others // own  # of the table's gradient, those of other ranks
        self.whole_table = 0 if self.tied else self.other_rows
        views = self.finished(self.run.front, self.run.views)
        self.longer = self.stream - views if self.run.views else 0  # the stream's gradient stays: some are views of it
        self.earlier = self.all_gradients + self.whole_table + self.longer if step.accumulate else 0
        self.logits = self.held(self.run.back, (self.run.logits,)) if step.holds_logits else 0

    def finished(self, section: Section, operations: Iterable[str]) -> Size:
        """Bytes of the gradients that some operations of one block, or of an end, finish."""
        kind, gradients = kind_of(section.numbers), self.gradients
        return sum([gradients.get((kind, operation), 0) for operation in operations])

    def left(self, section: Section) -> Size:
        """Bytes of the gradients that a block leaves behind its backward pass."""
        return self.finishes(section)

    def finishes(self, section: Section) -> Size:
        """Bytes of all gradients that one block, or an end, finishes."""
        return self.known_gradients.behind(kind_of(section.numbers), section.run.order)[0]

    def moments(self, section: Section) -> tuple[Reached, ...]:
        """Moments of a section's backward pass."""
        return self.insides[id(section)].places.moments

    def new(self, section: Section) -> tuple[Sequence[Size], Sequence[Size]]:
        """Bytes of this batch's gradients by the place of an operation, its own among them, or not. Where earlier ones
        are there each is added to its own and goes, but a tied head's, which waits for the table's."""
        if id(section) not in self.made:
            self.made[id(section)] = self._new(section)
        return self.made[id(section)]

    def _new(self, section: Section) -> tuple[Sequence[Size], Sequence[Size]]:
        inside = self.insides[id(section)]
        behind = self.known_gradients.behind(kind_of(section.numbers), section.run.order)
        if not self.step.accumulate:
            return behind, behind[1:]
        head = inside.place.get(HEAD, 0) if self.tied else 0
        tied = [self.tied if place < head else 0 for place in range(len(behind))]
        own = [here + waits for here, waits in zip(inside.together(behind), tied, strict=False)]
        return own, tied

    def held(self, section: Section, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of some tensors."""
        return self.insides[id(section)].all(tensors)

    def kept_in(self, section: Section) -> Size:
        """Bytes that one block of a section keeps, or what stands in front of the blocks or behind them."""
        return self.step.kept_in(section, self.insides[id(section)].sizes)

    def closures(self, block: int) -> Size:
        """Bytes that checkpointed blocks are handed and that are still there while one runs backwards."""
        if block not in self.handed:
            self.handed[block] = self.step.closures(block, self.turns)
        return self.handed[block]

    def _collected(self) -> Iterator[tuple[int, Size]]:
        """Gradients to which every block adds: the place of the operation in the last block, and their bytes."""
        inside = self.last_block
        if inside is not None:
            yield from ((inside.place[each.at], inside.bytes(each.held)) for each in self.run.collected)

    def adds_to(self, _: int) -> bool:
        """True if there is anything of that beside a block."""
        return bool(self.collected)

    def added_to(self, number: int, at: str = "") -> Size:
        """Bytes of the gradients to which every block adds, at an operation of one, or in front of its backward pass.
        The last block, which makes them, has them once that operation is behind."""
        if number < self.last:
            return self.all_collected
        if not at or not self.collected or self.last_block is None:
            return 0
        place = self.last_block.place[at]
        return sum([bytes_ for first, bytes_ in self.collected if place < first])

    def turned(self, number: int) -> Size:
        """Bytes of the angles that no block in front of one needs, nor it itself."""
        return sum([each.bytes for each in self.angles if number < each.first])

    def gone(self, number: int, moments: Sequence[Within], place: Mapping[str, int]) -> list[Size]:
        """Bytes of the angles that no block needs any more at each moment of one's backward pass."""
        gone = [self.turned(number)] * len(moments)
        for turn, bytes_, first, early in self.angles:
            if number != first or turn not in place:
                continue
            for nth, each in enumerate(moments):
                at, *_, after = each
                if place[at] < place[turn]:
                    gone[nth] += bytes_
                elif at == turn and after:
                    gone[nth] += early
        return gone

    def around(self, number: int, section: Section) -> tuple[Size, Size]:
        """Bytes kept by earlier blocks and by a checkpointed block itself, and the gradients of later ones."""
        kept, done = self.in_front[number], self.done_behind[number]
        if self.step.checkpoint:
            kept += self.held(section, (self.step.input,))
        return kept, self.tied if self.step.accumulate else done

    def within(self, section: Section, moments: Sequence[Reached]) -> list[Within]:
        """What there is at moments of a backward pass, whichever block of its kind runs."""
        stream = self.stream if section.numbers else 0
        inside = self.insides[id(section)]
        found = inside.within(moments, self.logits + 2 * self.loss, stream, self.new(section))
        if self.step.checkpoint and section.numbers:
            return self._run_again(section, found)
        if not self.run.again or not (biases := self._biases(section)):
            return found
        late, again = inside.late(biases, ran_again(section.run, "")), self.run.again
        less = (late.get(moment.at, 0) if moment.done and moment.at in again else 0 for moment in moments)
        return [(at, kept, held, new - own, a) for (at, kept, held, new, a), own in zip(found, less, strict=True)]

    def _run_again(self, section: Section, found: list[Within]) -> list[Within]:
        """The same in a block that runs again, without what goes once an operation has read it."""
        inside, run, biases = self.insides[id(section)], section.run, self._biases(section)
        gone: dict[str, Size] = {}
        for at in {at for at, *_, after in found if after}:
            gone[at] = inside.all(run.read_first.get(at, ()))
        late = inside.late(biases, ran_again(run, INPUT.path)) if biases else {}
        if not gone and not late:
            return found
        return [
            (at, kept - (gone[at] if after else 0), held, new - late.get(at, 0), after)
            for at, kept, held, new, after in found
        ]

    def _biases(self, section: Section) -> dict[str, Size]:
        kind = kind_of(section.numbers)
        return {operation: size for (owner, operation), size in self.biases.items() if owner == kind}


@lru_cache(maxsize=64)
def in_order(*numbers: Sequence[int]) -> Sequence[tuple[int, int]]:
    """Numbers of all blocks in their order, each with its kind, of the numbers of each kind."""
    return sorted((number, kind) for kind, own in enumerate(numbers) for number in own)


def running(order: Sequence[tuple[int, int]], each: Sequence[Size], start: Size) -> dict[int, Size]:
    """Bytes in front of each block, by its number. `order`: numbers of blocks and their kinds; `each`: of a kind."""
    found: dict[int, Size] = {}
    for number, kind in order:
        found[number] = start
        start += each[kind]
    return found
