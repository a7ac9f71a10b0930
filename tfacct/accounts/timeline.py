"""A training step as a timeline: what is alive at each instant of it, and the instant that decides.

Weights, the optimizer's state, finished gradients, what the forward pass keeps, and what an operation holds while it
runs. Blocks run backwards, and among equal ones in a row the sum is linear in a block's number, so only the first and
the last block of a kind can be the fullest, or block 1, the first beside which the angles stay; where kinds alternate,
also the one that has most in front of it and behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import add, sub

from tfacct.accounts.casts import CHOOSE, Casts
from tfacct.accounts.gradients import TABLE
from tfacct.accounts.inside import Insides, Moments, Within, totals
from tfacct.accounts.instants import Fullest as Fullest
from tfacct.accounts.instants import Instant as Instant
from tfacct.accounts.instants import peak as peak
from tfacct.accounts.step_sums import NOTHING, Beside, StepSums
from tfacct.accounts.training import ENDS, Step
from tfacct.ledger.einsum import Size, same
from tfacct.ledger.kept import Held, Run, Section
from tfacct.ledger.places import Reached

NARROW = Held("B T De")
"""The stream in front of the product behind tables that are narrower than the model."""
OUTSIDE = {"loss.": "loss", "lm_head.": "head", "head.": "head", "pooler.": "head", "classifier.": "head"}
"""What stands behind the body, and how its instants are called."""
LET_GO = ("loss.mean", "lm_head.norm")
"""Behind the body of an encoder, which has let go of what waited in it."""
BEHIND = 3
"""Instants in front of the blocks' backward pass: the forward pass ends, loss, head."""
LOSS = "loss, backward"
SECOND = 1
"""The first block in whose backward pass the angles stay to its end: an earlier block still needs them."""


def timeline(step: Step, known: Insides | None = None) -> list[Instant]:
    """The instants of a step, in their order: the peak is the fullest. `known`: sections of other stages of its pass.

    Instants inside the forward pass, of blocks that run again, and block 1 are there only where they decide.
    """
    if step.run.encoder is not None:
        from tfacct.accounts.timeline_pairs import pair_timeline

        return pair_timeline(step)
    whole = sums(step, known=known)
    ends = list(ends_of_stacks(whole.step))
    always = list(whole.always(ends))
    whole.most = most = max(int(instant.total) for instant in always)
    inside = [(number, one) for number, one in whole.inside_blocks(ends) if int(one.total) > most]
    if not inside:
        return always
    number, fullest = max(inside, key=lambda each: int(each[1].total))
    behind = (BEHIND if whole.loss else 1) + sum(end > number for end, _ in ends)
    place = 0 if fullest.gradients == 0 else behind
    return [*always[:place], fullest, *always[place:]]


def sums(step: Step, fullest: Fullest | None = None, known: Insides | None = None) -> Timeline:
    """The sums that the instants of a step share; `fullest` stands for some instants, the peak of them by default."""
    if step.stage is not None:
        from tfacct.accounts.timeline_stage import GatheredStageTimeline, StageTimeline

        return (StageTimeline if step.units is None else GatheredStageTimeline)(step, fullest or peak, known)
    if step.units is None:
        return Timeline(step, fullest or peak, known)
    from tfacct.accounts.timeline_units import UnitTimeline

    return UnitTimeline(step, fullest or peak, known)


def ends_of_stacks(step: Step) -> Iterator[tuple[int, Section]]:
    """The last and the first block of each kind, backwards. Beside adapters block 0 is apart, but no other kind."""
    ends = {number: section for section in step.run.blocks for number in (section.numbers[0], section.numbers[-1])}
    apart = step.stage is None or step.stage.first == 0
    if step.adapters and apart and len(step.run.blocks) > 1 and len(step.run.blocks[1].numbers) > 1:
        del ends[SECOND]
    return iter(sorted(ends.items(), key=lambda end: -end[0]))


class Timeline(StepSums):
    """The instants of a step, of sums that they share."""

    def __init__(self, step: Step, fullest: Fullest = peak, known: Insides | None = None) -> None:
        super().__init__(step, known)
        self.fullest = fullest
        self.most: Size | None = None  # of the instants that every step has, once they are known
        self.ids: Size = 0  # of tokens that are no one else's, which go with the table's gradient
        self.inside_backward: dict[tuple[int, int], Moments] = {}  # of moments of blocks that are alike
        self.decisive: dict[tuple[int, int], list[Within]] = {}
        self.run_again: dict[tuple[int, int], list[Within]] = {}
        self.most_again: dict[tuple[int, int], Size] = {}
        self.casts = None if step.wide is None else Casts(self)
        if self.casts is not None:  # under which a bias's gradient has moments of its own
            self.biases = {}

    def always(self, ends: Iterable[tuple[int, Section]]) -> Iterator[Instant]:
        """Instants that every step has, in their order."""
        yield self.forward_ends()
        yield from self.behind()
        yield from (self.block(number, section) for number, section in ends)
        yield from self.front()
        yield self.update()

    def instant(self, name: str, operation: str, gradients: Size, kept: Size, held: Size) -> Instant:
        """An instant with what is always there: weights, the optimizer's state, other microbatches."""
        own, beside = gradients + self.earlier, held + self.buckets
        return Instant(name, operation, self.weights, self.step.states, own, kept + self.flying, beside)

    def forward_ends(self) -> Instant:
        """The loss is known, and all that is kept is there."""
        kept = self.kept_front + self.kept_blocks + self.kept_behind
        return self.instant("forward ends", "", 0, kept, self.again + self.logits + self.loss)

    def behind(self) -> Iterator[Instant]:
        """The backward pass of loss and head, each at its fullest. A profile has the loss's moment first, or last."""
        if not self.run.back.run.moments:
            return  # the next stage has them
        found, kept = self.within(self.run.back), self.kept_front + self.kept_blocks
        loss = max(nth for nth, moment in enumerate(self.moments(self.run.back)) if moment.at.startswith("loss"))
        heads = [nth for nth in range(len(found)) if nth != loss]
        for name, nths in ((LOSS, [loss]), ("head, backward", heads)):
            yield self.backward(name, found, kept, 0, self.again, nths)

    def block(self, number: int, section: Section) -> Instant:
        """The backward pass of one block at its fullest."""
        name, (kept, done) = f"{self._called(number)}, backward", self.around(number, section)
        handed = self.closures(number)
        attended = self._attended(section.run)
        fewer = self.closures(number - 1) if attended else handed
        alike, adds, differ = self.alike[id(section)], self.adds_to(number), not same(fewer, handed)
        if (adds and number == self.last) or differ or any(number == each.first for each in self.angles):
            places = self.insides[id(section)].places
            gone = self.gone(number, places)
            more = self.added_inside(number, places) if adds else NOTHING
            if differ:
                more = more.and_where(places.below(attended), fewer - handed)
            found = self._decide(self._moments(section), gone, more)
        else:
            if alike not in self.decisive:
                self.decisive[alike] = self._decide(self._moments(section))
            found, kept = self.decisive[alike], kept - self.turned(number)
            handed += self.added_to(number)
        return self.fullest(
            [self.instant(name, at, done + new, kept + own, held + handed) for at, own, held, new, _ in found]
        )

    def decides(self, found: list[Within]) -> list[Within]:
        """Moments of which one can be the fullest: it alone, but where sizes are open."""
        if not found or self.fullest is not peak:
            return found
        sums = totals(found)
        return [found[sums.index(max(sums))]]

    def _decide(self, found: Moments, gone: Beside = NOTHING, more: Beside = NOTHING) -> list[Within]:
        """The same of a backward pass, beside what is gone at each moment, and what more is held."""
        sums = found.totals
        nths: Sequence[int] = range(len(sums))
        if self.fullest is peak and sums:
            for which, sizes in gone.steps:
                sums = list(map(sub, sums, map(sizes.__getitem__, which)))
            for which, sizes in more.steps:
                sums = list(map(add, sums, map(sizes.__getitem__, which)))
            nths = (sums.index(max(sums)),)
        return [found.at(nth, gone.at(nth), more.at(nth)) for nth in nths]

    def _moments(self, section: Section) -> Moments:
        """The moments of a block's backward pass, whichever block of its kind runs."""
        alike = self.alike[id(section)]
        if alike not in self.inside_backward:
            self.inside_backward[alike] = self.within(section)
        return self.inside_backward[alike]

    def _called(self, number: int) -> str:
        """A block by its number in the model."""
        return f"block {number:,}"

    def _attended(self, run: Run) -> int:
        """Number of operations in front of attention that is run again: it has been, once their gradients are made. Of
        a block that runs again, casts in front of all that needs it."""
        if self.casts is not None and (run.kept if self.step.checkpoint else run.remade):
            return run.first_read if self.step.checkpoint else run.first_remade
        if not self.run.again:
            return 0
        return next((place for place, name in enumerate(run.order) if name in self.run.again), len(run.order))

    def front(self) -> Iterator[Instant]:
        """The backward pass of what stands in front of the blocks, where that is trained.

        A tied table adds the head's gradient to its own.
        """
        front = self.run.front
        what = "table" if TABLE in front.run.order else "patches"
        done = self.all_gradients - self.finishes(front)
        behind = self.tied + (0 if self.step.accumulate else done)
        found, more = self.within(front), list[tuple[int, Size]]()
        for nth, moment in enumerate(self.moments(front)):
            beside = self._read_by(moment)
            if moment.at == TABLE:  # it reads the whole stream's; of all rows' the rank's own are taken to be added
                whole = beside if moment.alone else self.held(front, (self.step.whole_input,))
                rows = self.tied * (2 if self.other_rows else 1)
                more += [(nth, whole + self.other_rows), (nth, rows + self.other_rows - self.ids)]
            else:
                more.append((nth, beside - self._within_stream(moment)))
        if self.fullest is peak and more:
            more = [max(more, key=lambda each: int(found.totals[each[0]] + each[1]))]
        each = [found.at(nth, more=beside) for nth, beside in more]
        if each:
            yield self.fullest(
                [self.instant(f"{what}, backward", at, behind + new, own, held) for at, own, held, new, _ in each]
            )

    def _read_by(self, moment: Reached) -> Size:
        """Bytes of the stream's gradient at a moment in front of the blocks, or of what took its place."""
        if not moment.alone:
            return self.stream
        if TABLE in self.run.front.run.order:
            return self.held(self.run.front, (NARROW,))
        return self.stream if self.run.views and not self.step.accumulate else 0

    def _within_stream(self, moment: Reached) -> Size:
        """Bytes of gradients at a moment that lie in the stream's, and are counted with it."""
        views, front = self.run.views, self.run.front
        if not views:
            return 0
        there = [moment.at] if self.step.accumulate else front.run.order[moment.place :]
        return self.finished(front, views.intersection(there))

    def update(self) -> Instant:
        """The optimizer's step, beside the batch."""
        return self.instant(
            "optimizer step",
            "",
            self.all_gradients + self.whole_table - self.earlier,
            self.tokens - self.flying,
            self.step.update + self.logits + self.longer,
        )

    def inside_blocks(self, ends: Sequence[tuple[int, Section]]) -> Iterator[tuple[int, Instant]]:
        """Instants that decide in few models, by block: inside the forward pass, of blocks that run again, of block 1,
        of blocks that are neither the first nor the last of their kind."""
        if not self.step.checkpoint:
            yield from self._forward()
        if self.casts is not None:
            yield from self.casts.forward()
        elif self.step.checkpoint:
            yield from self._bare()
        others = list(self._others())
        for number, section in (*ends, *others) if self.step.checkpoint else ():
            yield from ((number, instant) for instant in self._again(number, section))
        for number, section in others:
            if not self.surely_below(number, section):
                yield number, self.block(number, section)

    def surely_below(self, number: int, section: Section) -> bool:
        """True if a block's backward pass is no fuller than instants that every step has, by what is quickly known."""
        if self.most is None:
            return False
        kept, done = self.around(number, section)
        most = max(self._moments(section).totals, default=0) + self._moments(section).always
        return self.below(0, kept - self.turned(number), self.closures(number) + self.all_collected + most, done)

    def _others(self) -> Iterator[tuple[int, Section]]:
        """Block 1, and where there are several kinds, the block of each with most kept in front and done behind, but
        for the first, in whose backward pass the angles may go."""
        several = len(self.run.blocks) > 1
        for section in self.run.blocks:
            if several and self.step.adapters and section.numbers[0] == SECOND:  # no end of a kind beside adapters
                yield SECOND, section
            if several and section.numbers[1:]:
                yield from ((number, section) for number in self.most_beside(section.numbers[1:]))
            elif SECOND in section.numbers:
                yield SECOND, section

    def most_beside(self, numbers: Sequence[int]) -> Sequence[int]:
        """The one of some blocks with most kept in front and done behind; any that can be, where sizes are open."""
        if self.fullest is peak:
            front, behind = self.in_front, self.done_behind
            beside = [front[at] + behind[at] for at in numbers]
            for _, bytes_, first, _ in self.angles:
                if numbers[0] < first:
                    beside = [all_ - (bytes_ if at < first else 0) for at, all_ in zip(numbers, beside, strict=True)]
            return [numbers[beside.index(max(beside))]]
        from tfacct.accounts.candidates import corners

        return corners(self, numbers)

    def backward(self, name: str, found: Moments, kept: Size, done: Size, handed: Size, nths: Sequence[int]) -> Instant:
        """The backward pass of an end at the fullest of some of its moments. `kept` and `done`: beside its own;
        `handed`: to checkpointed blocks that have not run again yet."""
        if self.fullest is peak:
            nths = (max(nths, key=found.totals.__getitem__),)
        each = map(found.at, nths)
        return self.fullest(
            [self.instant(name, at, done + new, kept + own, held + handed) for at, own, held, new, _ in each]
        )

    def _forward(self) -> Iterator[tuple[int, Instant]]:
        """The last block of each kind in the forward pass, and the final norm behind them."""
        waiting = self.waiting + (sum([each.bytes for each in self.beside.angles]) if self.run.again else 0)
        for section in self.run.blocks:
            number, inside = section.numbers[-1], self.insides[id(section)]
            before, beside = self.in_front[number], waiting
            casts = 0 if self.casts is None else self.casts.most_beside(number, section)
            if self.below(self.ahead_of(number), before, inside.most_ahead + beside + casts):
                continue
            found = inside.ahead() if number else inside.first_ahead()
            if self.casts is not None:
                found = self.casts.beside(number, section, found)
            name = f"{self._called(number)}, forward"
            for at, kept, held, *_ in self.decides(found):
                yield number, self.instant(name, at, 0, before + kept, held + beside)
        yield from ((ENDS, instant) for instant in self._forward_behind(waiting))

    def _forward_behind(self, waiting: Size) -> Iterator[Instant]:
        """The forward pass of what stands behind the blocks. `waiting`: bytes of what waits in the body."""
        behind, kept = self.insides[id(self.run.back)], self.kept_front + self.kept_blocks
        held = 0 if self.casts is None else self.casts.all
        if self.below(self.ahead_of(ENDS), kept, held + waiting + behind.most_ahead):
            return
        for at, own, beside, *_ in behind.ahead():
            if at == CHOOSE:
                continue
            outside = next((name for part, name in OUTSIDE.items() if at.startswith(part)), "")
            gone = at.startswith(LET_GO) or (outside and self.casts is not None)
            beside += held if gone else held + waiting
            yield self.instant(f"{outside or 'final norm'}, forward", at, 0, kept + own, beside)

    def below(self, more: Size, kept: Size, held: Size, done: Size = 0) -> bool:
        """True if no instant with so much, and `more`, is fuller than those that every step has."""
        return self.most is not None and bool(self.instant("", "", done, kept, held).total + more <= self.most)

    def ahead_of(self, _: int) -> Size:
        """Bytes beside a block's forward pass that the sums do not have: none."""
        return 0

    def again_of(self, _: int) -> Size:
        """The same where it runs again."""
        return 0

    def _bare(self) -> Iterator[tuple[int, Instant]]:
        """The forward pass of blocks that keep their inputs alone, the last of each kind, where another is in front."""
        for section in self.run.blocks:
            number = section.numbers[-1]
            kept = self.in_front[number] + self.held(section, (self.step.input,))
            inside = self.insides[id(section)]
            if not number or self.below(self.ahead_of(number), kept, inside.most_bare + self.again):
                continue
            for at, _, held, *_ in self.decides(inside.bare()):
                yield number, self.instant(f"{self._called(number)}, forward", at, 0, kept, held + self.again)

    def _again(self, number: int, section: Section) -> Iterator[Instant]:
        """A checkpointed block's second forward pass, which stops once all that it keeps is there."""
        kept, done = self.around(number, section)
        name, handed = f"{self._called(number)}, forward again", self.closures(number) + self.added_to(number)
        alike = self.alike[id(section)]
        if alike not in self.run_again:
            if alike not in self.most_again:
                self.most_again[alike] = self._most_again(section)
            if self.below(self.again_of(number), kept, handed + self.most_again[alike], done):
                return
            self.run_again[alike] = self.decides(self._ran_again(section))
        for at, own, held, new, _ in self.run_again[alike]:
            yield self.instant(name, at, done + new, kept + own, held + handed)

    def _most_again(self, section: Section) -> Size:
        """Bytes that a second forward pass is no fuller than."""
        most = self.insides[id(section)].most_ahead + self._ran_last(section) + self._beside_again(section)
        return most + (0 if self.casts is None else self.casts.unsaved(section))

    def _ran_again(self, section: Section) -> list[Within]:
        """What there is in a second forward pass, whichever block of its kind runs."""
        last, inside = section.run.last, self.insides[id(section)]
        new, beside = self._ran_last(section), self._beside_again(section)
        ahead = zip(inside.places.ahead, inside.ahead(beside), strict=True)
        found = [(*own[:3], new, own[4]) for each, own in ahead if (each.place, each.after) <= (last, False)]
        return found if self.casts is None else self.casts.again(section, found)

    def _ran_last(self, section: Section) -> Size:
        """Bytes of the gradients that are there as a block runs again: biases behind its last product need nothing that
        is made again."""
        return 0 if self.step.accumulate else self.finished(section, section.run.order[section.run.last + 1 :])

    def _beside_again(self, section: Section) -> Size:
        """Bytes held beside a block that runs again."""
        return self.held(section, section.run.early) + self.stream + self.logits + 2 * self.loss
