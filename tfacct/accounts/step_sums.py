"""Sums that the instants of a training step share: what is kept in front of each block, and what is done behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tfacct.accounts.gradients import HEAD, Gradients
from tfacct.accounts.inside import Inside, RanAgain, Within, suffixes
from tfacct.accounts.training import INPUT, Step, kind_of
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Section, bytes_each


class StepSums:
    """Bytes of a step: of all together, and beside and inside its blocks."""

    def __init__(self, step: Step) -> None:
        self.step, self.run = step, step.run
        self.flying = step.beside()
        self.insides = {id(section): Inside(section, step.at, step.pass_) for section in self.run.sections}
        self.news: dict[int, Callable[[Moment], Size]] = {}  # by the section
        self.handed: dict[int, Size] = {}  # by the block
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
        found = Gradients(step)
        self.gradients, self.biases, self.tied, self.all_gradients = found.of, found.biases, found.tied, found.all
        self.in_front, self.done_behind = self._beside_blocks()
        self.other_rows = (step.makers - 1) * found.rows  # of the table's gradient, those of other ranks
        self.whole_table = 0 if self.tied else self.other_rows
        self.earlier = self.all_gradients + self.whole_table if step.accumulate else 0
        self.logits = self.held(self.run.back, (self.run.logits,)) if step.holds_logits else 0

    def finished(self, section: Section, operations: Iterable[str]) -> Size:
        """Bytes of the gradients that some operations of one block, or of an end, finish."""
        kind = kind_of(section.numbers)
        return sum(self.gradients.get((kind, operation), 0) for operation in operations)

    def left(self, section: Section) -> Size:
        """Bytes of the gradients that a block leaves behind its backward pass."""
        return self.finished(section, section.run.order)

    def _beside_blocks(self) -> tuple[dict[int, Size], dict[int, Size]]:
        """Bytes kept in front of each block, and of the gradients of all that is behind it, by its number."""
        kinds = [(number, kind) for kind, part in enumerate(self.run.blocks) for number in part.numbers]
        each = [self.left(part) for part in self.run.blocks]
        kept, done = self.kept_front, self.finished(self.run.back, self.run.back.run.order)
        in_front: dict[int, Size] = {}
        behind: dict[int, Size] = {}
        for number, kind in sorted(kinds):
            in_front[number] = kept
            kept += self.inside[kind]
        for number, kind in sorted(kinds, reverse=True):
            behind[number] = done
            done += each[kind]
        return in_front, behind

    def new(self, section: Section) -> Callable[[Moment], Size]:
        """Bytes of this batch's gradients at a moment. Where earlier ones are there each is added to its own and goes,
        but a tied head's, which waits for the table's."""
        if id(section) not in self.news:
            self.news[id(section)] = self._new(section)
        return self.news[id(section)]

    def _new(self, section: Section) -> Callable[[Moment], Size]:
        inside = self.insides[id(section)]
        if not self.step.accumulate:
            behind = suffixes(section.run.order, kind_of(section.numbers), self.gradients)
            return lambda moment: behind[inside.place[moment.at] + (not moment.done)]

        def sums(moment: Moment) -> Size:
            own = self.finished(section, inside.together(moment.at) if moment.done else ())
            return own + (self.tied if moment.at != HEAD and HEAD in section.run.finished(moment) else 0)

        return sums

    def inside_of(self, section: Section, moment: Moment, known: frozenset[str] = frozenset()) -> tuple[Size, Size]:
        """Bytes kept by a section's own lines at a moment, and held there. Tensors of `known` names are counted."""
        return self.insides[id(section)].at(moment, known)

    def held(self, section: Section, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of some tensors."""
        return self.insides[id(section)].all(tensors)

    def kept_in(self, section: Section) -> Size:
        """Bytes that one block of a section keeps, or what stands in front of the blocks or behind them."""
        return self.held(section, self.step.lines_of(section))

    def closures(self, block: int) -> Size:
        """Bytes that checkpointed blocks are handed and that are still there while one runs backwards."""
        if block not in self.handed:
            self.handed[block] = self.step.closures(block, self.turns)
        return self.handed[block]

    def adds_to(self, _: int) -> bool:
        """True if there is anything of that beside a block."""
        return bool(self.run.collected)

    def added_to(self, number: int, at: str = "") -> Size:
        """Bytes of the gradients to which every block adds, at an operation of one, or in front of its backward pass.
        The last block, which makes them, has them once that operation is behind."""
        last = max([section.numbers[-1] for section in self.run.blocks]) if self.run.collected else number
        found: Size = 0
        for each in self.run.collected:
            section = next(section for section in self.run.blocks if number in section.numbers)
            place = self.insides[id(section)].place
            if number < last or (at and place[at] < place[each.at]):
                found += self.held(section, (each.held,))
        return found

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
                if place[each.at] < place[turn]:
                    gone[nth] += bytes_
                elif each.at == turn and each.after:
                    gone[nth] += early
        return gone

    def around(self, number: int, section: Section) -> tuple[Size, Size]:
        """Bytes kept by earlier blocks and by a checkpointed block itself, and the gradients of later ones."""
        kept, done = self.in_front[number], self.done_behind[number]
        if self.step.checkpoint:
            kept += self.held(section, (self.step.input,))
        return kept, self.tied if self.step.accumulate else done

    def known(self, section: Section) -> frozenset[str]:
        return frozenset((INPUT.path,)) if self.step.checkpoint and section.numbers else frozenset()

    def within(self, section: Section, moments: Iterable[Moment]) -> Iterator[Within]:
        """What there is at moments of a backward pass, whichever block of its kind runs."""
        run, inside, kind = section.run, self.insides[id(section)], kind_of(section.numbers)
        again, known, new = self.step.checkpoint and bool(section.numbers), self.known(section), self.new(section)
        always = self.logits + 2 * self.loss
        biases = {operation: size for (owner, operation), size in self.biases.items() if owner == kind}
        late = None
        if biases and again:
            late = RanAgain(run.kept, (line for line in run.kept if line.path == INPUT.path))
        elif biases and self.run.again:
            late = RanAgain(run.remade, run.kept)
        for moment in moments:
            at, there = moment.at, known
            if again and moment.after:
                there |= {line.path for line in run.kept if line.by[0] == at}
            own, held = inside.at(moment, there)
            held += always + (self.stream if section.numbers and not moment.alone else 0)
            done = new(moment)
            if late is not None and (again or (moment.done and at in self.run.again)):
                done -= inside.late(at, biases, late)
            yield Within(at, own, held, done, moment.after)
