"""A training step as a timeline: what is alive at each instant of it, and the instant that decides.

Weights, the optimizer's state, finished gradients, what the forward pass keeps, and what an operation holds while it
runs. Blocks run backwards, and among equal ones in a row the sum is linear in a block's number, so only the first and
the last block of a kind can be the fullest, or block 1, the first beside which the angles stay; where kinds alternate,
also the one that has most in front of it and behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from tfacct.accounts.casts import CHOOSE, Casts
from tfacct.accounts.inside import Inside, suffixes
from tfacct.accounts.instants import Fullest as Fullest
from tfacct.accounts.instants import Instant as Instant
from tfacct.accounts.instants import peak as peak
from tfacct.accounts.training import ENDS, INPUT, Step, kind_of
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Run, Section, bytes_each

TOKENS, TABLE, POSITIONS, HEAD = "tokens", "embed", "pos_embed", "lm_head.weight"
MEAN, PRODUCT_BIAS = "loss.mean", "_proj.bias"
BEHIND = 3
"""Instants in front of the blocks' backward pass: the forward pass ends, loss, head."""
SECOND = 1
"""The first block in whose backward pass the angles stay to its end: an earlier block still needs them."""


def timeline(step: Step) -> list[Instant]:
    """The instants of a step, in their order: the peak is the fullest.

    Instants inside the forward pass, of blocks that run again, and block 1 are there only where they decide.
    """
    whole = sums(step)
    ends = list(ends_of_stacks(step))
    always = list(whole.always(ends))
    most = max(int(instant.total) for instant in always)
    inside = [(number, one) for number, one in whole.inside_blocks(ends) if int(one.total) > most]
    if not inside:
        return always
    number, fullest = max(inside, key=lambda each: int(each[1].total))
    behind = (BEHIND if whole.loss else 1) + sum(end > number for end, _ in ends)
    place = 0 if fullest.gradients == 0 else behind
    return [*always[:place], fullest, *always[place:]]


def sums(step: Step, fullest: Fullest | None = None) -> Timeline:
    """The sums that the instants of a step share; `fullest` stands for some instants, the peak of them by default."""
    if step.units is None:
        return Timeline(step, fullest or peak)
    from tfacct.accounts.timeline_units import UnitTimeline

    return UnitTimeline(step, fullest or peak)


def ends_of_stacks(step: Step) -> Iterator[tuple[int, Section]]:
    """The last and the first block of each kind, backwards. Beside adapters block 0 is apart, but no other kind."""
    ends = {number: section for section in step.run.blocks for number in (section.numbers[0], section.numbers[-1])}
    if step.adapters and len(step.run.blocks) > 1 and len(step.run.blocks[1].numbers) > 1:
        del ends[SECOND]
    return iter(sorted(ends.items(), key=lambda end: -end[0]))


class Timeline:
    """The sums that the instants of a step share."""

    def __init__(self, step: Step, fullest: Fullest = peak) -> None:
        self.step, self.run, self.fullest = step, step.run, fullest
        self.flying = step.beside()
        self.insides = {id(section): Inside(section, step.at, step.pass_) for section in self.run.sections}
        self.behind_places: dict[int, list[Size]] = {}  # of finished gradients, by the section
        self.inside_backward: dict[tuple[int, int], tuple[Size, Size, Size]] = {}
        self.weights = step.weights
        # Its gradient takes as many; a stage of a pipeline that is not the last has none.
        self.loss = bytes_each(self.run.loss, step.stored) if self.run.back.run.moments else 0
        self.again = step.closures()
        front = self.run.front
        self.stream = step.bytes(front, (step.input,))
        self.kept_front = step.kept_in(front)
        self.inside = [step.kept_in(section) for section in self.run.blocks]
        self.kept_blocks = sum(part.count * kept for part, kept in zip(self.run.blocks, self.inside, strict=True))
        self.angles = () if step.hands else tuple(step.angles())
        self.tied = _tied(step)
        self.gradients: dict[tuple[int, str], Size] = {}  # by the first block of a kind, and the operation
        self.biases: dict[tuple[int, str], Size] = {}
        self.all_gradients: Size = 0
        own = {name for section in self.run.sections for name in section.run.order if name.endswith(PRODUCT_BIAS)}
        for gradient in step.gradients():
            owner = gradient.kind, gradient.path if gradient.path in own else _operation(gradient.path)
            self.gradients[owner] = self.gradients.get(owner, 0) + gradient.bytes
            if gradient.path.endswith(PRODUCT_BIAS) and gradient.path not in own:
                self.biases[owner] = gradient.bytes
            self.all_gradients += gradient.copies * gradient.bytes
        if TABLE not in self.run.front.run.order:  # a stage behind the first has a tied table as its head alone
            self.gradients[ENDS, HEAD] = self.gradients.pop((ENDS, TABLE), self.gradients.get((ENDS, HEAD), 0))
        self.gradients[ENDS, HEAD] = self.gradients.get((ENDS, HEAD), 0) + self.tied
        self.in_front, self.done_behind = self._beside_blocks()
        self.casts = None if step.wide is None else Casts(self, step.wide)
        if self.casts is not None:  # under which a bias's gradient has moments of its own
            self.biases = {}
        rows = sum(each.bytes for each in step.gradients() if each.path == f"{TABLE}.weight")
        self.other_rows = (step.makers - 1) * rows  # of the table's gradient, those of other ranks
        self.whole_table = 0 if self.tied else self.other_rows
        self.earlier = self.all_gradients + self.whole_table if step.accumulate else 0
        self.logits = self.held(self.run.back, (self.run.logits,)) if step.holds_logits else 0

    def always(self, ends: Iterable[tuple[int, Section]]) -> Iterator[Instant]:
        """Instants that every step has, in their order."""
        yield self.forward_ends()
        yield from self.behind()
        yield from (self.block(number, section) for number, section in ends)
        yield from self.front()
        yield self.update()

    def instant(self, name: str, operation: str, gradients: Size, kept: Size, held: Size) -> Instant:
        """An instant with what is always there: weights, the optimizer's state, other microbatches."""
        gradients += self.earlier + (0 if self.step.stage is None else self.step.stage.gradients)
        kept += self.flying
        return Instant(name, operation, self.weights, self.step.states, gradients, kept, held + self.step.buckets)

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

    def new(self, section: Section, moment: Moment) -> Size:
        """Bytes of this batch's gradients at a moment. Where earlier ones are there each is added to its own and goes,
        but a tied head's, which waits for the table's."""
        if not self.step.accumulate:
            if id(section) not in self.behind_places:
                order = section.run.order
                self.behind_places[id(section)] = suffixes(order, kind_of(section.numbers), self.gradients)
            return self.behind_places[id(section)][self.insides[id(section)].place[moment.at] + (not moment.done)]
        done = section.run.finished(moment)
        own = self.finished(section, section.run.together(moment.at) if moment.done else ())
        return own + (self.tied if HEAD in done and moment.at != HEAD else 0)

    def inside_of(self, section: Section, moment: Moment, known: frozenset[str] = frozenset()) -> tuple[Size, Size]:
        """Bytes kept by a section's own lines at a moment, and held there. Tensors of `known` names are counted."""
        return self.insides[id(section)].at(moment, known)

    def held(self, section: Section, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of some tensors."""
        return self.insides[id(section)].all(tensors)

    def forward_ends(self) -> Instant:
        """The loss is known, and all that is kept is there."""
        behind = self.step.kept_in(self.run.back)
        return self.instant(
            "forward ends", "", 0, self.kept_front + self.kept_blocks + behind, self.again + self.logits + self.loss
        )

    def behind(self) -> Iterator[Instant]:
        """The backward pass of loss and head, each at its fullest."""
        if not self.run.back.run.moments:
            return  # the next stage has them
        *heads, loss = self.run.back.run.moments
        for name, moments in (("loss, backward", [loss]), ("head, backward", heads)):
            yield self.fullest(
                self._backward(name, self.run.back, moment, self.kept_front + self.kept_blocks, 0, self.again)
                for moment in moments
            )

    def block(self, number: int, section: Section) -> Instant:
        """The backward pass of one block at its fullest."""
        name, (kept, done) = f"{self._called(number)}, backward", self._around(number, section)
        gone = {moment: self._turned(number, section.run, moment) for moment in section.run.moments}
        handed = self.step.closures(number)
        attended = self._attended(section.run) if self.run.again else ()
        fewer = self.step.closures(number - 1) if attended else handed
        return self.fullest(
            self._backward(name, section, moment, kept - gone[moment], done, fewer if moment.at in attended else handed)
            for moment in section.run.moments
            if moment.done or not self.step.checkpoint or section.run.order.index(moment.at) != section.run.last
        )

    def _called(self, number: int) -> str:
        """A block by its number in the model."""
        return f"block {number + (0 if self.step.stage is None else self.step.stage.first):,}"

    def _attended(self, run: Run) -> Sequence[str]:
        """Operations in front of attention that is run again: it has been, once their gradients are computed."""
        return tuple(takewhile(lambda name: name not in self.run.again, run.order))

    def _turned(self, number: int, run: Run | None = None, moment: Moment | None = None) -> Size:
        """Bytes of the angles that no block needs any more while one runs backwards, itself at a moment of its run."""
        gone: Size = 0
        for turn, bytes_, first in self.angles:
            done = number < first
            if number == first and run is not None and moment is not None and turn in run.order:
                done = run.order.index(moment.at) < run.order.index(turn)
                if moment.at == turn and moment.after:  # the sines are read first
                    gone += bytes_ // 2
            gone += bytes_ * done
        return gone

    def front(self) -> Iterator[Instant]:
        """The backward pass of what stands in front of the blocks, where that is trained.

        A tied table adds the head's gradient to its own.
        """
        front = self.run.front
        done = self.all_gradients - self.finished(front, front.run.order)
        behind = self.tied + (0 if self.step.accumulate else done)
        found = []
        for moment in front.run.moments:
            one = self._backward("table, backward", front, moment, 0, behind, 0)
            more = [self.stream]
            if moment.at == TABLE:  # it reads the whole stream's; of all rows' the rank's own are taken to be added
                stream = self.step._replace(kept_input=None).input
                whole, rows = self.step.bytes(front, (stream,)), self.tied * (2 if self.other_rows else 1)
                more = [whole + self.other_rows, rows + self.other_rows]
            found += [one._replace(held=one.held + held) for held in more]
        if found:
            yield self.fullest(found)

    def update(self) -> Instant:
        """The optimizer's step, beside the batch."""
        front = self.run.front
        tokens = self.step.bytes(front, (line for line in front.run.kept if line.path == TOKENS))
        return self.instant(
            "optimizer step",
            "",
            self.all_gradients + self.whole_table - self.earlier,
            tokens - self.flying,
            self.step.update + self.logits,
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
            yield number, self.block(number, section)

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
            return [max(numbers, key=lambda at: int(self._beside(at)))]
        from tfacct.accounts.candidates import corners

        return corners(self, numbers)

    def _beside(self, number: int) -> Size:
        return self.in_front[number] - self._turned(number) + self.done_behind[number]

    def _around(self, number: int, section: Section) -> tuple[Size, Size]:
        """Bytes kept by earlier blocks and by a checkpointed block itself, and the gradients of later ones."""
        kept, done = self.in_front[number], self.done_behind[number]
        if self.step.checkpoint:
            kept += self.step.bytes(section, [self.step.input])
        return kept, self.tied if self.step.accumulate else done

    def _backward(self, name: str, section: Section, moment: Moment, kept: Size, done: Size, handed: Size) -> Instant:
        """An instant of the backward pass. `kept` and `done`: beside the section's own; `handed`: to checkpointed
        blocks that have not run again yet."""
        key = id(section), id(moment)
        if key not in self.inside_backward:
            self.inside_backward[key] = self._inside(section, moment)
        own, held, new = self.inside_backward[key]
        return self.instant(name, moment.at, done + new, kept + own, held + handed)

    def _inside(self, section: Section, moment: Moment) -> tuple[Size, Size, Size]:
        """Bytes kept, held and of new gradients at a moment of a backward pass, whichever block of its kind runs."""
        again = self.step.checkpoint and section.numbers
        known = self._known(section)
        if again and moment.after:
            known |= {line.path for line in section.run.alive(moment.at) if line.by[0] == moment.at}
        own, held = self.inside_of(section, moment, known)
        held += self.logits + 2 * self.loss + (self.stream if section.numbers and not moment.alone else 0)
        new = self.new(section, moment)
        if again:
            inputs = [line for line in section.run.kept if line.path == INPUT.path]
            new -= self._late(section, moment, section.run.kept, inputs)
        if moment.at in self.run.again and moment.done:
            new -= self._late(section, moment, section.run.remade, section.run.kept)
        return own, held, new

    def _late(self, section: Section, moment: Moment, remade: Iterable[Kept], stay: Iterable[Kept]) -> Size:
        """Bytes of biases' gradients at a moment, no more than what their products read: they come last, and what was
        made again for a product is gone by then. `stay`: what was there all the time."""
        together, kind = section.run.together(moment.at), kind_of(section.numbers)
        needed = (line for line in remade if line.by[0] not in together)  # by an earlier operation too
        stays = {operation for line in (*needed, *stay) for operation in line.by}
        apart = {operation for operation in together if operation not in stays}
        last = sum(self.biases.get((kind, operation), 0) for operation in apart)
        read = self.held(section, (line for line in remade if not apart.isdisjoint(line.by)))
        return min(last, read, key=int)

    def _known(self, section: Section) -> frozenset[str]:
        return frozenset((INPUT.path,)) if self.step.checkpoint and section.numbers else frozenset()

    def _forward(self) -> Iterator[tuple[int, Instant]]:
        """The last block of each kind in the forward pass, and the final norm behind them."""
        waiting = self.held(self.run.front, self.run.waiting)
        waiting += sum(each.bytes for each in self.step.angles()) if self.run.again else 0
        for section in self.run.blocks:
            number = section.numbers[-1]
            known = frozenset((INPUT.path,)) if not number else frozenset[str]()  # block 0 reads what waits anyway
            for moment in section.run.ahead:
                held = [held for held in moment.held if held.path not in known]
                own, beside = self.inside_of(section, moment._replace(held=tuple(held)))
                kept = self.in_front[number] + own
                beside += self._returned(number)
                beside += 0 if self.casts is None else self.casts.there(number, section, moment)
                yield number, self.instant(f"{self._called(number)}, forward", moment.at, 0, kept, beside + waiting)
        for moment in self.run.back.run.ahead:
            if moment.at == CHOOSE:
                continue
            own, beside = self.inside_of(self.run.back, moment)
            beside += 0 if moment.at == MEAN else waiting  # which the body let go of
            kept = self.kept_front + self.kept_blocks + own
            beside += self._returned() + (0 if self.casts is None else self.casts.there())
            name = "head, forward" if moment.at == HEAD else "final norm, forward"
            yield ENDS, self.instant(name, moment.at, 0, kept, beside)

    def _returned(self, behind: int | None = None) -> Size:
        """Bytes of what blocks have returned beside the stream, those in front of one, or all."""
        each = ((section, self.held(section, section.run.returned)) for section in self.run.blocks)
        return sum(size * sum(behind is None or one < behind for one in part.numbers) for part, size in each if size)

    def _bare(self) -> Iterator[tuple[int, Instant]]:
        """The forward pass of blocks that keep their inputs alone, the last of each kind, where another is in front."""
        for section in self.run.blocks:
            number = section.numbers[-1]
            kept = self.in_front[number] + self.step.bytes(section, [self.step.input])
            for moment in section.run.bare if number else ():
                held = self.held(section, moment.held) + self.again
                yield number, self.instant(f"{self._called(number)}, forward", moment.at, 0, kept, held)

    def _again(self, number: int, section: Section) -> Iterator[Instant]:
        """A checkpointed block's second forward pass, which stops once all that it keeps is there."""
        kept, done = self._around(number, section)
        run, last = section.run, section.run.last
        if not self.step.accumulate:  # biases behind the last product need nothing that is made again
            done += self.finished(section, run.order[last + 1 :])
        for moment in run.ahead:
            if (run.order.index(moment.at), moment.after) <= (last, False):
                own, held = self.inside_of(section, moment, self._known(section))
                held += self.held(section, run.early) + self.stream
                held += 0 if self.casts is None else self.casts.of_biases(section, moment)
                held += self.step.closures(number) + self.logits + 2 * self.loss
                yield self.instant(f"{self._called(number)}, forward again", moment.at, done, kept + own, held)


def _tied(step: Step) -> Size:
    """Bytes of the token table's gradient where the head has made one too."""
    if TABLE not in step.run.front.run.order:
        return 0
    head = any(line.path == "lm_head" and getattr(line, "weight", None) for g in step.ledger.groups for line in g.lines)
    return sum(each.bytes for each in step.gradients() if each.path == "embed.weight") if head else 0


def _operation(path: str) -> str:
    """The operation whose backward finishes a parameter's gradient."""
    owner, _, _ = path.rpartition(".")
    return owner if owner in (TABLE, POSITIONS) else f"{owner}.weight"
