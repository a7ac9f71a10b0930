"""Sums that the instants of a training step share: what is kept in front of each block, and what is done behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from tfacct.accounts.gradients import HEAD, gradients_of
from tfacct.accounts.inside import Inside, Insides, Moments, ran_again
from tfacct.accounts.training import INPUT, Step, kind_of
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Section, bytes_each
from tfacct.ledger.places import Places, Reached

BATCH = frozenset(("tokens", "labels"))
"""What stands in front of the blocks and is the caller's."""


class Beside(NamedTuple):
    """Bytes beside the moments of a block: at all of them, and by which of several each of `steps` is at."""

    always: Size = 0
    steps: Sequence[tuple[Sequence[int], Sequence[Size]]] = ()

    def at(self, nth: int) -> Size:
        """Those beside one."""
        return self.always + sum([sizes[which[nth]] for which, sizes in self.steps])

    def and_where(self, which: Sequence[bool], size: Size) -> Beside:
        """These, and so many more at some moments."""
        return Beside(self.always, [*self.steps, (which, (0, size))])


NOTHING = Beside()


class StepSums:
    """Bytes of a step: of all together, and beside and inside its blocks. `known`: sections of other stages of its
    pass."""

    def __init__(self, step: Step, known: Insides | None = None) -> None:
        asked = step
        blocks = tuple([part for section in step.run.blocks for part in section.apart()])
        if len(blocks) > len(step.run.blocks):
            step = step._replace(run=step.run._replace(blocks=blocks))
        self.step = step
        self.run = run = step.run
        self.insides: dict[int, Inside] = {}
        known = known or Insides()
        for section in run.sections:
            again = step.checkpoint and bool(section.numbers)
            self.insides[id(section)] = known.of(section, step.at, step.pass_, again=again)
        self.handed: dict[int, Size] = {}  # by the block
        self.weights = step.parameters + self.held(run.front, run.buffers)
        # Its gradient takes as many; a stage of a pipeline that is not the last has none.
        self.loss = bytes_each(run.loss, step.stored) if run.back.run.moments else 0
        self.beside = step.handed(self.insides[id(run.front)].sizes)
        self.angles = () if step.hands else self.beside.angles
        self.again = step.closures(None, self.beside)
        self.stream = self.insides[id(run.front)].sizes.bytes(step.input)
        self.kept_front = self.kept_in(run.front)
        self.inside = [self.kept_in(section) for section in run.blocks]
        self.kept_blocks = sum(part.count * kept for part, kept in zip(run.blocks, self.inside, strict=True))
        self.kept_behind = self.kept_in(run.back)
        own = self.kept_front + self.kept_blocks + self.kept_behind + self.again
        self.flying, self.buckets = asked.beside(own), step.buckets
        self.waiting = self.held(run.front, run.waiting)
        self._make_gradients()

    def _make_gradients(self) -> None:
        """Sums of what the backward pass makes, and of what stays with that."""
        step, run = self.step, self.run
        found = gradients_of(step)
        self.behind_places = {id(part): found.behind(kind_of(part.numbers), part.run.order) for part in run.sections}
        self.gradients, self.biases, self.tied, self.all_gradients = found.of, found.biases, found.tied, found.all
        self.kinds = in_order(*[tuple(part.numbers) for part in run.blocks])
        left = [self.left(part) for part in run.blocks]
        self.in_front = running(self.kinds, self.inside, self.kept_front)
        self.done_behind = running(self.kinds[::-1], left, self.finishes(run.back))[-2::-1]
        self.last = max(len(self.kinds) - 1, 0)
        self.last_block = self.insides[id(run.blocks[self.kinds[-1]])] if self.kinds else None
        self.alike = {id(part): self._alike(part) for part in run.blocks}
        self.collected = tuple(self._collected())
        self.all_collected = sum([bytes_ for _, bytes_ in self.collected])
        others, own = step.rows
        self.other_rows = found.rows * others // own  # of the table's gradient, those of other ranks
        self.whole_table = 0 if self.tied else self.other_rows
        views = self.finished(run.front, run.views)
        self.longer = self.stream - views if run.views else 0  # the stream's gradient stays: some are views of it
        self.earlier = self.all_gradients + self.whole_table + self.longer if step.accumulate else 0
        self.logits = self.held(run.back, (run.logits,)) if step.holds_logits else 0

    def _alike(self, section: Section) -> tuple[int, int]:
        """What blocks have together that run backwards alike."""
        return id(self.insides[id(section)]), id(self.behind_places[id(section)])

    def finished(self, section: Section, operations: Iterable[str]) -> Size:
        """Bytes of the gradients that some operations of one block, or of an end, finish."""
        kind, gradients = kind_of(section.numbers), self.gradients
        return sum([gradients.get((kind, operation), 0) for operation in operations])

    def left(self, section: Section) -> Size:
        """Bytes of the gradients that a block leaves behind its backward pass; ranks that share them scatter them."""
        return self.finishes(section)

    def finishes(self, section: Section) -> Size:
        """Bytes of all gradients that one block, or an end, finishes."""
        return self.behind_places[id(section)][0]

    def moments(self, section: Section) -> tuple[Reached, ...]:
        """Moments of a section's backward pass."""
        return self.insides[id(section)].places.moments

    def new(self, section: Section) -> Sequence[Size]:
        """Bytes of this batch's gradients at each moment of a section's backward pass: whatever the batch, the same."""
        inside, behind = self.insides[id(section)], self.behind_places[id(section)]
        known, key = inside.places.found, (id(behind), self.step.accumulate)
        if key not in known:
            finished, left = self._new(inside, behind)
            own = [finished[place] if done else left[place] for _, place, done, _, _ in inside.places.moments]
            known[key] = behind, own  # the list stays, and with it its number
        found: Sequence[Size] = known[key][1]
        return found

    def _new(self, inside: Inside, behind: Sequence[Size]) -> tuple[Sequence[Size], Sequence[Size]]:
        """Bytes of them by the place of an operation, its own among them, or not. Where earlier ones are there each is
        added to its own and goes, but a tied head's, which waits for the table's."""
        if not self.step.accumulate:
            return behind, behind[1:]
        head = inside.place.get(HEAD, 0) if self.tied else 0
        tied = [self.tied if place < head else 0 for place in range(len(behind))]
        own = [here + waits for here, waits in zip(inside.together(behind), tied, strict=False)]
        return own, tied

    @property
    def tokens(self) -> Size:
        """Bytes of the batch."""
        front = self.run.front
        return self.held(front, (line for line in front.run.kept if line.path in BATCH))

    def held(self, section: Section, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of some tensors."""
        return self.insides[id(section)].sizes.all(tensors)

    def kept_in(self, section: Section) -> Size:
        """Bytes that one block of a section keeps, or what stands in front of the blocks or behind them."""
        return self.step.kept_in(section, self.insides[id(section)].sizes)

    def closures(self, block: int) -> Size:
        """Bytes that checkpointed blocks are handed and that are still there while one runs backwards."""
        if block not in self.handed:
            self.handed[block] = self.step.closures(block, self.beside)
        return self.handed[block]

    def _collected(self) -> Iterator[tuple[str, Size]]:
        """Gradients to which every block adds: the operation in the last block that makes each, and their bytes."""
        inside = self.last_block
        if inside is not None:
            yield from ((each.at, inside.sizes.bytes(each.held)) for each in self.run.collected)

    def adds_to(self, _: int) -> bool:
        """True if there is anything of that beside a block."""
        return bool(self.collected)

    def added_to(self, number: int) -> Size:
        """Bytes of the gradients to which every block adds, in front of the backward pass of one."""
        return self.all_collected if number < self.last else 0

    def added_inside(self, number: int, places: Places) -> Beside:
        """The same at moments of one. The last block, which makes them, has each once its operation is behind."""
        found = Beside(self.added_to(number))
        for at, bytes_ in self.collected if number == self.last else ():
            found = found.and_where(places.below(places.of[at]), bytes_)
        return found

    def turned(self, number: int) -> Size:
        """Bytes of the angles that no block in front of one needs, nor it itself."""
        return sum([each.bytes for each in self.angles if number < each.first])

    def gone(self, number: int, places: Places) -> Beside:
        """Bytes of the angles that no block needs any more at the moments of one's backward pass."""
        last = [each for each in self.angles if number == each.first and each.turn in places.of]
        steps = [(places.passed(each.turn), (0, each.early, each.bytes)) for each in last]
        return Beside(self.turned(number), steps)

    def around(self, number: int, section: Section) -> tuple[Size, Size]:
        """Bytes kept by earlier blocks and by a checkpointed block itself, and the gradients of later ones."""
        kept, done = self.in_front[number], self.done_behind[number]
        if self.step.checkpoint:
            kept += self.insides[id(section)].sizes.bytes(self.step.input)
        return kept, self.tied if self.step.accumulate else done

    def within(self, section: Section) -> Moments:
        """Moments of a backward pass, whichever block of its kind runs."""
        inside, new = self.insides[id(section)], self.new(section)
        always, stream = self.logits + 2 * self.loss, self.stream if section.numbers else 0
        whole = self.step.checkpoint and bool(section.numbers)
        if (whole or self.run.again) and (biases := self._biases(section)):
            late = inside.late(biases, ran_again(section.run, INPUT.path if whole else ""))
            moments = self.moments(section)
            there = [one.at if whole or (one.done and one.at in self.run.again) else "" for one in moments]
            new = [own - late.get(at, 0) for own, at in zip(new, there, strict=True)]
        return Moments(inside, new, always, stream)

    def _biases(self, section: Section) -> dict[str, Size]:
        kind = kind_of(section.numbers)
        return self.biases.get(kind, {})


@lru_cache(maxsize=64)
def in_order(*numbers: Sequence[int]) -> Sequence[int]:
    """Kinds of all blocks in their order, of the numbers of each kind: these count from 0."""
    kinds = {number: kind for kind, own in enumerate(numbers) for number in own}
    return [kinds[number] for number in range(len(kinds))]


def running(kinds: Sequence[int], each: Sequence[Size], start: Size) -> list[Size]:
    """Bytes in front of each block, and behind the last. `kinds`: of these blocks; `each`: of a block of a kind."""
    return [*accumulate(map(each.__getitem__, kinds), initial=start)]
