"""The timeline of a step of two sides: the encoder's forward pass, the decoder's, then both backwards.

Each side is a timeline of its own. Beside the decoder's instants stands all that the encoder keeps, beside the
encoder's backward pass all gradients of the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.accounts.timeline import Instant, Timeline, ends_of_stacks, sums
from tfacct.accounts.timeline_units import GATHERED_FIRST, SCATTER, UnitTimeline
from tfacct.accounts.training import ENDS, Angles, Step
from tfacct.ledger.einsum import Size

LABELS, SHIFT, TOKENS, MEMORY = "labels", "labels.shift", "tokens", "memory"
GIVEN = "B J D"
"""Axes of what the encoder gave."""
SCORES, ADDED, DISTANCES = "blocks.*.attn.scores", "blocks.*.attn.biased", "distances"
"""Attention's scores, their sum with those of distances, and the rows of the table of these."""
ZEROS, ATTENDED = "zeros", "blocks.*.cross.sdpa"
"""Zeros that every block's attention to the source is handed for scores of distances, and that attention."""
OUTSIDE = ("loss", "head")
"""Instants of the forward pass behind the decoder's body, where nothing else waits."""
LAST_READ = "blocks.*.cross.k_proj.weight"
"""The operation of block 0 behind which no gradient needs what the encoder gave."""


def sides(step: Step) -> tuple[Step, Step]:
    """The steps of the encoder and of the decoder, each with its own tokens."""
    assert step.run.encoder is not None
    source = step.at["I"]
    reads = step.run.encoder._replace(buffers=())
    at = {**step.at, "T": source, "S": source}
    units = None if step.units is None else step.units._replace(blocks=step.units.source)
    return (
        step._replace(run=reads, at=at, side="encoder", holds_logits=False, units=units),
        step._replace(run=step.run._replace(encoder=None, source=()), side="decoder"),
    )


def _distances(side: Timeline) -> Iterator[Angles]:
    """Distances and the gradient of their scores, which go as angles do: block 0 makes that of the table of them."""
    front = side.run.front
    if lines := [line for line in front.run.kept if line.path == DISTANCES]:
        gradients = [each.held for each in side.run.collected if each.at == ADDED]
        made = side.gradients.get((ENDS, "rel_bias.weight"), 0)
        turn = SCORES if any(SCORES in inside.place for inside in side.insides.values()) else ADDED
        yield Angles(turn, side.held(front, (*lines, *gradients)) - made, 0, 0)


class PairTimeline:
    """The instants of both sides."""

    def __init__(self, step: Step) -> None:
        reading, writing = sides(step)
        self.reads, self.writes = sums(reading), sums(writing)
        self.ends: Size = 0  # shares of what is in no block, of which both sides have the gradients
        if isinstance(self.reads, UnitTimeline) and isinstance(self.writes, UnitTimeline):
            self.ends, self.writes.ends = self.writes.ends, 0  # scattered behind the encoder
            self.writes.others[-1] = self.reads.unit(self.reads.last)
            self.reads.others[self.reads.last + 1] = self.writes.unit(0)
        self.reads.loss = 0  # the decoder's
        self.read_ends, self.written_ends = (list(ends_of_stacks(side.step)) for side in (self.reads, self.writes))
        self.step = step
        front = writing.run.front
        inside = self.writes.insides[id(front)]
        each = {line.path: inside.sizes.bytes(line) for line in front.run.kept}
        self.labels, self.writes.ids = each[LABELS], each[TOKENS]
        self.shifted = 0 if SHIFT in front.run.order else self.writes.ids  # the decoder's own
        self.memory: Size = 0  # in the forward pass, where no gradient needs it
        if step.wide is not None:
            self.memory = self.writes.held(front, (one for one in writing.run.waiting if one.spec == GIVEN))
        if not step.checkpoint:  # goes as angles do; a block that runs again was handed it, and has it to its end
            if MEMORY in each:
                self.writes.angles = (*self.writes.angles, Angles(LAST_READ, each[MEMORY], 0, each[MEMORY]))
            if ZEROS in each:
                self.writes.angles = (*self.writes.angles, Angles(ATTENDED, each[ZEROS], 0, 0))
        for side in (self.reads, self.writes):
            side.angles = (*side.angles, *_distances(side))
        read = reading.run.front
        self.source = sum([self.reads.held(read, (line,)) for line in read.run.kept if line.path == TOKENS])
        self.done: Size = 0 if step.accumulate else self.writes.all_gradients
        self.logits = 2 * self.writes.loss + self.writes.logits
        self._stand_beside_each_other()

    def _stand_beside_each_other(self) -> None:
        """Beside each instant of the decoder stands all that the encoder keeps, beside each of the encoder the labels;
        beside both what the other has of earlier batches, but for gradients that both have."""
        read, write = self.reads, self.writes
        shared = read.tied if self.step.accumulate else 0
        if self.step.units is not None and self.step.units.accumulates:
            shared = self.ends
        self.written_earlier = write.earlier - shared
        read.earlier, write.earlier = read.earlier + self.written_earlier, write.earlier + read.earlier - shared
        read.weights, read.flying = write.weights, read.flying + self.labels
        write.flying += read.kept_front + read.kept_blocks + read.kept_behind
        write.buckets += read.again

    @property
    def all_gradients(self) -> Size:
        """Bytes of all gradients; a table of both sides has one. Of ranks that share them, of the shares."""
        if isinstance(self.reads, UnitTimeline) and isinstance(self.writes, UnitTimeline):
            return self.reads.scattered + self.writes.scattered + self.ends
        return self.reads.all_gradients - self.reads.tied + self.writes.all_gradients

    def reading(self, one: Instant) -> Instant:
        """An instant of the encoder's forward pass, beside what the decoder is to read."""
        return one.beside(f"encoder, {one.name}", kept=self.shifted)

    def read_backwards(self, one: Instant) -> Instant:
        """One of its backward pass, beside what the decoder has made. A table of both has one gradient."""
        done, of_table = self.done, one.name.startswith("table")
        if of_table and isinstance(self.writes, UnitTimeline) and one.operation == SCATTER:
            done = self.writes.scattered - self.written_earlier  # all else is in the buffer
        elif of_table and not self.step.accumulate:
            done -= self.reads.tied
        return one.beside(f"encoder, {one.name}", gradients=done, held=self.logits)

    def writing(self, one: Instant) -> Instant:
        """An instant of the decoder's, in the forward pass beside the encoder's casts, and what it gave."""
        if self.reads.casts is None or not one.name.endswith(", forward"):
            return one
        return one.beside(held=self.reads.casts.all + (self.memory if one.name.startswith(OUTSIDE) else 0))

    def always(self) -> Iterator[Instant]:
        """Instants that every step has."""
        write, read = self.writes, self.reads
        yield write.forward_ends()
        yield from write.behind()
        yield from (write.block(*end) for end in self.written_ends)
        added = write.held(write.run.front, [each.held for each in write.run.collected if each.at != ADDED])
        yield from (one.beside(held=added) for one in write.front())
        backwards = [*self._final(), *(read.block(*end) for end in self.read_ends), *read.front()]
        yield from map(self.read_backwards, backwards)
        yield write.update()._replace(
            gradients=self.all_gradients, kept=self.labels + self.source, held=self.step.update + write.logits
        )

    def _final(self) -> Iterator[Instant]:
        """The norm behind the encoder's blocks, backwards."""
        read, back = self.reads, self.reads.run.back
        kept, waits = read.kept_front + read.kept_blocks, read.tied if self.step.accumulate else 0
        found = read.within(back)
        if len(found):
            one = read.backward("final norm, backward", found, kept, waits, read.again, range(len(found)))
            yield one._replace(gathered=read.root + read.unit(read.last) if isinstance(read, UnitTimeline) else 0)

    def inside(self, most: Size) -> Iterator[Instant]:
        """Instants that decide in few models, but for those that are surely no fuller than this."""
        casts = self.reads.casts
        self.reads.most = most - max(self.shifted, self.done + self.logits)
        self.writes.most = most - (0 if casts is None else casts.all + self.memory)
        for _, one in self.reads.inside_blocks(self.read_ends):
            forward = "again" not in one.name and "backward" not in one.name
            yield self.reading(one) if forward else self.read_backwards(one)
        for _, one in self.writes.inside_blocks(self.written_ends):
            if one.name != GATHERED_FIRST:  # with what is in no block, in front of the encoder
                yield self.writing(one)


def pair_timeline(step: Step) -> list[Instant]:
    """The instants of a step of two sides, in their order; the fullest inside a pass is there only where it decides."""
    whole = PairTimeline(step)
    always = list(whole.always())
    most = max(int(instant.total) for instant in always)
    fullest = max(whole.inside(most), key=lambda each: int(each.total), default=always[0])
    if int(fullest.total) <= most:
        return always
    place = 0 if fullest.gradients == 0 else len(always) - 1
    return [*always[:place], fullest, *always[place:]]
