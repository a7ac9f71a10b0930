"""The timeline of a rank whose weights are gathered unit by unit, as torch's fully_shard gathers them.

A block's weights are gathered into a buffer, copied out of it, and let go of behind its forward pass; the buffer stays
until the next block's is full. Backwards a block's weights are gathered again while the block behind it runs (the
prefetch that fully_shard does by default), and the buffer that its gradients are scattered from stays until the next
block's gradients are. What is in no block is gathered once and stays to the end, its gradients with it
(`torch.distributed.fsdp._fully_shard._fsdp_param_group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfacct.accounts.inside import Insides
from tfacct.accounts.timeline import LOSS, Fullest, Instant, Timeline, peak
from tfacct.accounts.training import ENDS, Step, Units, kind_of
from tfacct.ledger.einsum import Size, letters
from tfacct.ledger.kept import Section

GATHER = "all-gather"
SCATTER = "reduce-scatter"
GATHERED_FIRST = "first block gathered"


class UnitTimeline(Timeline):
    """The sums of a timeline, with weights gathered and gradients scattered unit by unit."""

    def __init__(self, step: Step, fullest: Fullest = peak, known: Insides | None = None) -> None:
        super().__init__(step, fullest, known)
        units = self._units
        self.sections = {number: part for part in self.run.blocks for number in part.numbers}
        blocks = sum(part.count * self.finishes(part) for part in self.run.blocks)
        self.scattered: Size = sum(part.count * self._scattered(part) for part in self.run.blocks)
        self.ends = 0 if units.lent is not None else units.stored.bytes(units.root)
        self.summed: Size = sum(part.count * self._summed(part) for part in self.run.blocks)
        self.all_gradients += self.summed - blocks
        if units.accumulates:  # each sum is added to its own, and goes
            self.earlier = self.scattered + self.ends
        else:
            self.all_gradients += self.scattered
        self.root = self._whole(units.root)
        self.sizes: dict[int, Size] = {}  # of units, by the first block of a kind
        self.others: dict[int, Size] = {}  # of the other side's next unit, by the number that it would have here

    @property
    def _units(self) -> Units:
        assert self.step.units is not None
        return self.step.units

    def _whole(self, elements: int) -> Size:
        """Bytes of all shares of a unit, where they are gathered."""
        return self.step.pass_.bytes(self._units.ranks * elements) if self._units.gathers else 0

    def left(self, section: Section) -> Size:
        """Bytes that a block's gradients add once they are scattered."""
        return self._summed(section) + (0 if self._units.accumulates else self._scattered(section))

    def _summed(self, section: Section) -> Size:
        """Bytes of a block's gradients as copies sum them, which fully_shard keeps to the end of the backward pass,
        where these are not the ones that are stored: they are cast, or added to earlier ones."""
        units = self._units
        apart = units.stored != self.step.pass_ or units.accumulates
        if not (units.copied and self._scatters and apart):
            return 0
        return self.step.pass_.bytes(units.blocks[kind_of(section.numbers)])

    def _scattered(self, section: Section) -> Size:
        kind, lent = kind_of(section.numbers), self._units.lent
        if lent is not None:
            return lent[kind]
        return self._units.stored.bytes(self._units.blocks[kind] + self._units.experts(kind).elements)

    def unit(self, number: int) -> Size:
        """Bytes of a block's weights of all ranks; 0 where no block has this number."""
        part = self.sections.get(number)
        if part is None:
            return self.others.get(number, 0)
        kind = part.numbers[0]
        if kind not in self.sizes:
            experts = self._units.experts(kind)
            # One rank's experts are gathered nowhere; they are cast there, as fully_shard among one rank does.
            copied = experts.ranks > 1 or self._units.stored != self.step.pass_
            others = self.step.pass_.bytes(experts.ranks * experts.elements) if copied else 0
            own = self._whole(self._units.blocks[kind]) + others
            self.sizes[kind] = own + self.sums(number) if self._units.lent is not None else own
        return self.sizes[kind]

    def _copied_in(self, number: int) -> Size:
        """Bytes of the rank's part of a block's weights in the pass's dtype, where they are stored in another one: it
        is there while the block is gathered."""
        part, units = self.sections.get(number), self._units
        if part is None or not self._scatters or units.stored == self.step.pass_:
            return 0
        return self.step.pass_.bytes(units.blocks[kind_of(part.numbers)])

    def sums(self, number: int) -> Size:
        """Bytes of a block's gradients of all ranks, which are those of its weights, or of its adapters alone."""
        part, lent = self.sections.get(number), self._units.lent
        if lent is None or part is None:
            return self.unit(number)
        return self._units.ranks * lent[part.numbers[0]]

    def forward_ends(self) -> Instant:
        """The loss is known, and the weights of all blocks are let go of."""
        return super().forward_ends()._replace(gathered=self.root)

    def behind(self) -> Iterator[Instant]:
        """The backward pass of loss and head, while the last block is gathered."""
        last = max(self.sections)
        gathered = self.root + self.unit(last)
        for instant in super().behind():
            found = [instant._replace(gathered=gathered)]
            if (copied := self._copied_in(last)) and instant.name == LOSS:
                starts = self.forward_ends()._replace(name=LOSS, operation=GATHER)
                found.append(starts._replace(gathered=gathered + copied))
            yield self.fullest(found)

    def block(self, number: int, section: Section) -> Instant:
        """The backward pass of one block at its fullest: while it runs, or once its weights are copied out."""
        runs = super().block(number, section)
        scatters, next_ = self.sums(number + 1), self.unit(number - 1)
        runs = runs._replace(held=runs.held + scatters, gathered=self.root + self.unit(number) + next_)
        kept = self.in_front[number] - self.turned(number) + self.kept_in(section)
        held = scatters + self.stream + self.logits + 2 * self.loss + self.closures(number)
        there = self.instant(runs.name, GATHER, self.done_behind[number], kept, held)
        found = [runs, there._replace(gathered=self.root + 2 * self.unit(number))]
        if copied := self._copied_in(number - 1):
            found.append(there._replace(gathered=self.root + self.unit(number) + next_ + copied))
        if self._scatters and not self._units.experts(kind_of(section.numbers)).elements:
            own = self._scattering(kind_of(section.numbers), self.sums(number))
            held = own + self.stream + self.logits + 2 * self.loss + self.closures(number - 1)
            kept = self.in_front[number] - self.turned(number - 1)
            one = self.instant(runs.name, SCATTER, self.done_behind[number], kept, held)
            found.append(one._replace(gathered=self.root + next_))
        return self.fullest(found)

    def front(self) -> Iterator[Instant]:
        """The backward pass of what stands in front of the blocks, beside the gradients that block 0 scatters; or the
        end of it, where those of what is in no block are."""
        scatters = self.sums(min(self.sections))
        for instant in super().front():
            yield self.fullest((instant._replace(held=instant.held + scatters, gathered=self.root), *self._scatter()))

    @property
    def _scatters(self) -> bool:
        """True if gradients of all weights are scattered, unit by unit."""
        return self._units.gathers and self._units.lent is None

    def _scattering(self, kind: int, whole: Size) -> Size:
        """Bytes held while a unit's gradients are scattered, its weights let go of: all gradients in one buffer, that
        of the last parameter beside it, the rank's part, and this in the dtype that it is stored in."""
        pass_, units = self.step.pass_, self._units
        part = units.root if kind == ENDS else units.blocks[kind]
        cast = units.stored.bytes(part) if units.stored != pass_ else 0
        return whole + pass_.bytes(units.last[kind] + part) + cast

    def _scatter(self) -> Iterator[Instant]:
        """The gradients of what is in no block are scattered."""
        if not self.ends or not self._scatters:
            return
        held = self._scattering(ENDS, self.root) + self.logits + 2 * self.loss
        done = self.summed + (0 if self._units.accumulates else self.scattered)
        yield self.instant("table, backward", SCATTER, done, self.tokens, held)

    def update(self) -> Instant:
        """The optimizer's step, of what the rank stores."""
        return super().update()._replace(gradients=self.scattered + self.ends)

    def _others(self) -> Iterator[tuple[int, Section]]:
        """Besides, of the blocks between two others: the last but one is the first behind whose gradients another
        block's are scattered."""
        yield from super()._others()
        for section in self.run.blocks:
            between: dict[tuple[Size, Size], list[int]] = {}
            for number in section.numbers:
                between.setdefault((self.unit(number - 1), self.unit(number + 1)), []).append(number)
            for numbers in between.values():
                yield from ((number, section) for number in self.most_beside(numbers))

    def surely_below(self, _: int, __: Section) -> bool:
        """What is gathered beside a block is not known quickly."""
        return False

    def _forward(self) -> Iterator[tuple[int, Instant]]:
        yield from (
            (number, instant._replace(gathered=self.ahead_of(number))) for number, instant in super()._forward()
        )

    def ahead_of(self, number: int) -> Size:
        return self.root + (self.unit(max(self.sections)) if number == ENDS else 2 * self.unit(number))

    def again_of(self, number: int) -> Size:
        return self.root + self.unit(number) + self.unit(number - 1) + self.sums(number + 1)

    def inside_blocks(self, ends: Sequence[tuple[int, Section]]) -> Iterator[tuple[int, Instant]]:
        """Besides, of the forward pass, the first block of each kind and the last while they are gathered."""
        yield from super().inside_blocks(ends)
        waiting = self.again if self.step.checkpoint else self.waiting
        first = min(self.sections)
        starts = self.instant(GATHERED_FIRST, GATHER, 0, self.kept_front, self._embedded())
        yield ENDS, starts._replace(gathered=2 * (self.root + self.unit(first)))
        for section in self.run.blocks:
            for number in {section.numbers[0], section.numbers[-1]} - {first}:
                yield number, self._copied(number, waiting)

    def _embedded(self) -> Size:
        """Bytes held in front of the blocks: what block 0 reads, and what it was made of, where that is another tensor;
        and what blocks that run again are handed."""
        run, handed = self.run, {one.held for one in self.run.handed} if self.step.checkpoint else set()
        streams = sum(one.times for one in run.waiting if "D" in letters(one.spec))
        others = (one for one in run.waiting if one not in handed and (streams > 1 or "D" not in letters(one.spec)))
        return self.stream + self.held(run.front, others) + (self.again if self.step.checkpoint else 0)

    def _copied(self, number: int, waiting: Size) -> Instant:
        """A block is gathered into a buffer, and copied out of it, while the buffer of the one in front is there."""
        name = f"{self._called(number)}, forward"
        there = self.instant(name, GATHER, 0, self.in_front[number], self.stream + waiting)
        return there._replace(gathered=self.root + 2 * self.unit(number) + self.unit(number - 1))

    def _again(self, number: int, section: Section) -> Iterator[Instant]:
        gathered, scatters = self.root + self.unit(number) + self.unit(number - 1), self.sums(number + 1)
        for instant in super()._again(number, section):
            yield instant._replace(held=instant.held + scatters, gathered=gathered)
