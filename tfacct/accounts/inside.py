"""Bytes inside one section of a pass, by how far its operations have come: each line's are added up once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Held, Kept, Run, Section, Sizes
from tfacct.ledger.places import Places, Reached
from tfacct.ledger.storage import Width

Within: TypeAlias = tuple[str, Size, Size, Size, bool]
"""A moment of one block: what runs, bytes kept by its own lines, held, and of new gradients, and its `after`."""


def totals(found: Iterable[Within]) -> list[Size]:
    """Bytes of all together, at each of some moments."""
    return [kept + held + new for _, kept, held, new, _ in found]


class Inside:
    """One section: what is kept up to each place of its operations, but for its input where blocks run `again`, which
    is counted elsewhere. `others`: sections whose tensors may be as large."""

    def __init__(
        self, section: Section, at: Axes, pass_: Width, *, again: bool = False, others: Iterable[Inside] = ()
    ) -> None:
        self.axes: Axes = {**section.axes, **at}
        alike = (each.sizes for each in others if each.axes == self.axes)
        sizes = next(alike, None) or Sizes(self.axes, pass_)
        self.sizes: Sizes = sizes
        self.run = section.run
        self.places = self.run.places_again if again else self.run.places
        self.place = self.places.of
        self.of_kind = self._of_kind(self.places)
        self.up_to = self._up_to(self.places.added)
        self.sums = sums_of(self.places.sums[: self.places.backwards], self.of_kind)
        self.remade = self._up_to(self.places.remade) if self.places.remade else ()

    def _of_kind(self, places: Places) -> list[Size]:
        """Bytes of a tensor of each kind."""
        sizes = self.sizes
        return [sizes[kind] for kind in places.kinds]

    @cached_property
    def sums_ahead(self) -> list[Size]:
        """Bytes of what moments of the backward pass hold, and of what those of the forward pass do."""
        return [*self.sums, *sums_of(self.places.sums[self.places.backwards :], self.of_kind)]

    @cached_property
    def most_ahead(self) -> Size:
        """Bytes that no moment of the forward pass is fuller than: all that is kept, and the most of each kind held."""
        (held,) = sums_of((self.places.fullest_ahead,), self.of_kind)
        return held + (self.up_to[-1] if self.up_to else 0)

    def _up_to(self, tensors: Iterable[tuple[int, int, int]]) -> list[Size]:
        """Bytes of tensors, each given by its place, kind and number, up to each place."""
        of_kind, sums = self.of_kind, list[Size]((0,) * (len(self.run.order) or 1))
        for place, kind, times in tensors:
            sums[place] += times * of_kind[kind]
        return [*accumulate(sums)]

    def bytes(self, tensor: Held | Kept) -> Size:
        """Bytes of a tensor."""
        return tensor.times * self.sizes[tensor.spec, tensor.role]

    def all(self, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of several."""
        sizes = self.sizes
        return sum([each.times * sizes[each.spec, each.role] for each in tensors])

    def within(
        self,
        moments: Iterable[Reached],
        always: Size = 0,
        stream: Size = 0,
        new: tuple[Sequence[Size], Sequence[Size]] | None = None,
        *,
        ahead: bool = False,
    ) -> list[Within]:
        """What there is at moments of the backward pass, or `ahead` of it. `always` is held at each, `stream` at those
        that are not alone; `new`: bytes of gradients by the place of an operation, its own among them or not."""
        up_to, remade, both = self.up_to, self.remade, always + stream
        if ahead:
            sums = self.sums_ahead
            return [
                (at, up_to[here], (always if alone else both) + sums[held], 0, after)
                for at, here, held, _, after, alone, _ in moments
            ]
        none = (0,) * len(up_to) if new is None else ()
        sums, (done_there, left_there), found = self.sums, new or (none, none), []
        for at, here, held, done, after, alone, again in moments:
            beside = (always if alone else both) + sums[held]
            if again >= 0:
                beside += remade[again]
            found.append((at, up_to[here], beside, done_there[here] if done else left_there[here], after))
        return found

    def first_ahead(self) -> list[Within]:
        """What there is at the moments of block 0's forward pass, which reads what waits anyway."""
        places = self.run.places_again
        sums = self.sums_ahead if places is self.places else sums_of(places.sums, self._of_kind(places))
        return [(each.at, self.up_to[each.place], sums[each.held], 0, each.after) for each in places.ahead]

    def bare(self) -> list[Within]:
        """What is held at the moments of a forward pass that keeps nothing."""
        sums = sums_of([terms for _, terms in self.places.bare], self.of_kind)
        return [(at, 0, held, 0, False) for (at, _), held in zip(self.places.bare, sums, strict=True)]

    def together(self, behind: Sequence[Size]) -> list[Size]:
        """Of sums behind each place, the share of an operation and those behind it that have no moments of their own:
        they run as one."""
        ends = (self.places.stops[bisect_right(self.places.stops, place)] for place in range(len(self.run.order)))
        return [behind[place] - behind[end] for place, end in enumerate(ends)]

    def late(self, biases: Mapping[str, Size], again: RanAgain) -> dict[str, Size]:
        """Bytes of biases' gradients by the operation of a moment, no more than what their products read: they come
        last, and what was made again for a product is gone by then."""
        known, names = self.places.late, tuple(biases)
        if (names, id(again)) not in known:
            known[names, id(again)] = tuple(self._late(names, again))
        return {
            at: min(sum([biases[name] for name in apart]), self.all(lines), key=int)
            for at, apart, lines in known[names, id(again)]
        }

    def _late(self, biases: Iterable[str], again: RanAgain) -> Iterator[tuple[str, list[str], list[Kept]]]:
        """The first of operations that run as one, those with biases of what was made again for them, and that."""
        stops = self.places.stops
        for place in {bisect_right(stops, self.place[name]) - 1 for name in biases if name in self.place}:
            together = self.run.order[stops[place] : stops[place + 1]] if place >= 0 else ()
            apart = [
                operation
                for operation in together
                if operation not in again.stay
                and all(line.by[0] in together for line in again.needed.get(operation, ()))
            ]
            lines = {line.path: line for operation in apart for line in again.needed.get(operation, ())}
            if together:
                yield together[0], [name for name in apart if name in biases], list(lines.values())


class Insides:
    """Sections of steps of one pass at one workload, of whatever number of blocks, each worked out once."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, bool], tuple[Section, Inside]] = {}  # with what the ids are of

    def of(self, section: Section, at: Axes, pass_: Width, *, again: bool) -> Inside:
        """What is known of one."""
        key = id(section.run), id(section.axes), again
        if key not in self.known:
            others = [inside for _, inside in self.known.values()]
            self.known[key] = section, Inside(section, at, pass_, again=again, others=others)
        return self.known[key][1]


def ran_again(run: Run, name: str) -> RanAgain:
    """What a run that is run again makes: all that it keeps but a line of this name, which is there all the time; or,
    without a name, what its attention makes anew."""
    known = run.places.late
    if name not in known:
        there = (line for line in run.kept if line.path == name)
        known[name] = RanAgain(run.kept, there) if name else RanAgain(run.remade, run.kept)
    found: RanAgain = known[name]
    return found


class RanAgain:
    """What is made again by the operations that need it, and operations that need what was there all the time."""

    def __init__(self, remade: Iterable[Kept], there: Iterable[Kept]) -> None:
        self.needed: dict[str, list[Kept]] = {}
        for line in remade:
            for operation in line.by:
                self.needed.setdefault(operation, []).append(line)
        self.stay = frozenset(operation for line in there for operation in line.by)


def sums_of(every: Iterable[Sequence[tuple[int, int]]], of_kind: Sequence[Size]) -> list[Size]:
    """Bytes of so many tensors of each kind, for each of several moments."""
    found: list[Size] = []
    for terms in every:
        held: Size = 0
        for kind, times in terms:
            held += times * of_kind[kind]
        found.append(held)
    return found
