"""Bytes inside one section of a pass, by how far its operations have come: each line's are added up once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from typing import TypeAlias

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Kept, Run, Section, Sizes
from tfacct.ledger.places import Reached, Terms
from tfacct.ledger.storage import Width

Within: TypeAlias = tuple[str, Size, Size, Size, bool]
"""A moment of one block: what runs, bytes kept by its own lines, held, and of new gradients, and its `after`."""


def totals(found: Iterable[Within]) -> list[Size]:
    """Bytes of all together, at each of some moments."""
    return [kept + held + new for _, kept, held, new, _ in found]


class Inside:
    """A run whose tensors are of these sizes: what is there at its moments, but for a block's input where it runs
    `again`, which is counted elsewhere."""

    def __init__(self, run: Run, sizes: Sizes, *, again: bool = False) -> None:
        self.run, self.sizes = run, sizes
        self.places = run.places_again if again else run.places
        self.place = self.places.of
        each = sizes.each
        self.of_kind = [sizes[spec] * each[role] for spec, role in self.places.kinds]

    @property
    def most_ahead(self) -> Size:
        """Bytes that no moment of the forward pass is fuller than."""
        return self._of(self.places.fullest_ahead)

    @property
    def most_bare(self) -> Size:
        """The same of a forward pass that keeps nothing."""
        return self._of(self.places.fullest_bare)

    def _of(self, terms: Iterable[tuple[int, int]]) -> Size:
        of_kind = self.of_kind
        return sum([times * of_kind[kind] for kind, times in terms])

    def casts(self, *, kept: bool) -> list[Size]:
        """Bytes of the casts that are made, up to each place. `kept`: those that lines keep, too: of a block that runs
        again these stay no longer than others."""
        of_kind, sums = self.of_kind, list[Size]((0,) * (len(self.run.order) or 1))
        for place, kind, times, line in self.places.casts:
            if kept or not line:
                sums[place] += times * of_kind[kind]
        return [*accumulate(sums)]

    def all_casts(self, *, kept: bool) -> Size:
        """Bytes of all of them."""
        return self._of(self.places.all_casts if kept else self.places.unsaved)

    def up_to(self, place: int) -> Size:
        """Bytes kept up to a place of its operations."""
        return self._of(self.places.kept[place].items())

    def kept_at(self, moment: Reached) -> Size:
        """Bytes kept at a moment of the backward pass; what an operation of a block made again has read is gone."""
        kept = self.up_to(moment.place)
        gone = self.run.read_first.get(moment.at, ()) if moment.after and self.places.known else ()
        return kept - self.sizes.all(gone) if gone else kept

    def ahead(self, beside: Size = 0) -> list[Within]:
        """What there is at moments of the forward pass. `beside`: held at each."""
        ahead, sums = self.places.ahead, sums_of(self.places.changes_ahead, self.of_kind)
        kept = [self.up_to(moment.place) for moment in ahead]
        return [
            (moment.at, own, whole - own + beside, 0, moment.after)
            for moment, own, whole in zip(ahead, kept, sums, strict=True)
        ]

    def first_ahead(self) -> list[Within]:
        """What there is at the moments of block 0's forward pass, which reads what waits anyway."""
        place, again = self.place, Inside(self.run, self.sizes, again=True).ahead()
        return [(at, self.up_to(place[at]), held, new, after) for at, _, held, new, after in again]

    def bare(self) -> list[Within]:
        """What is held at the moments of a forward pass that keeps nothing."""
        sums = sums_of(self.places.changes_bare, self.of_kind)
        return [(at, 0, held, 0, False) for at, held in zip(self.places.bare, sums, strict=True)]

    def together(self, behind: Sequence[Size]) -> list[Size]:
        """Of sums behind each place, the share of an operation and those behind it that have no moments of their own:
        they run as one."""
        ends = (self.places.stops[bisect_right(self.places.stops, place)] for place in range(len(self.run.order)))
        return [behind[place] - behind[end] for place, end in enumerate(ends)]

    def late(self, biases: Mapping[str, Size], again: RanAgain) -> dict[str, Size]:
        """Bytes of biases' gradients by the operation of a moment, no more than what their products read: they come
        last, and what was made again for a product is gone by then."""
        known, names = self.places.found, tuple(biases)
        if (names, id(again)) not in known:
            known[names, id(again)] = tuple(self._late(names, again))
        return {
            at: min(sum([biases[name] for name in apart]), self.sizes.all(lines), key=int)
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


class Moments:
    """Moments of a section's backward pass, whichever block of its kind runs: bytes of all together at each. `new`:
    bytes of gradients at each; `always` is held at all of them, `stream` at those that are not alone."""

    def __init__(self, inside: Inside, new: Sequence[Size], always: Size = 0, stream: Size = 0) -> None:
        self.inside, self.new, self.always = inside, new, always + stream
        self.totals = sums_of(inside.places.changes, [*inside.of_kind, -stream], new)

    def __len__(self) -> int:
        return len(self.totals)

    def at(self, nth: int, gone: Size = 0, more: Size = 0) -> Within:
        """One of them, beside what else is gone of kept lines, and what more is held."""
        moment, new = self.inside.places.moments[nth], self.new[nth]
        kept = self.inside.kept_at(moment)
        return moment.at, kept - gone, self.totals[nth] - kept - new + self.always + more, new, moment.after

    def all(self) -> list[Within]:
        """All of them."""
        return [self.at(nth) for nth in range(len(self.totals))]


class Insides:
    """Sections of steps of one pass at one workload, of whatever number of blocks, each worked out once."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, bool], tuple[Section, Inside]] = {}  # with what the ids are of
        self.alike: dict[tuple[int, int], Inside] = {}  # by their places and sizes
        self.sizes: dict[int, Sizes] = {}  # by the axes of a section

    def of(self, section: Section, at: Axes, pass_: Width, *, again: bool) -> Inside:
        """What is known of one."""
        key = id(section.run), id(section.axes), again
        if key not in self.known:
            places = section.run.places_again if again else section.run.places
            sizes = self._sizes(section.axes, at, pass_)
            own = id(places), id(sizes)
            if own not in self.alike:
                self.alike[own] = Inside(section.run, sizes, again=again)
            self.known[key] = section, self.alike[own]
        return self.known[key][1]

    def _sizes(self, own: Axes, at: Axes, pass_: Width) -> Sizes:
        """Sizes of tensors of some axes: sections of the same axes have them together."""
        if id(own) not in self.sizes:
            axes = {**own, **at}
            others = (sizes for sizes in self.sizes.values() if sizes.axes == axes)
            self.sizes[id(own)] = next(others, Sizes(axes, pass_))
        return self.sizes[id(own)]


def ran_again(run: Run, name: str) -> RanAgain:
    """What a run that is run again makes: all that it keeps but a line of this name, which is there all the time; or,
    without a name, what its attention makes anew."""
    known = run.places.found
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


def sums_of(changes: Iterable[Terms], of_kind: Sequence[Size], beside: Iterable[Size] = repeat(0)) -> list[Size]:
    """Bytes of the tensors of several moments, each given by how many of each kind it has more than the one before, and
    of what is beside each."""
    held: Size = 0
    found: list[Size] = []
    for terms, own in zip(changes, beside, strict=False):
        for kind, times in terms:
            held += times * of_kind[kind]
        found.append(held + own)
    return found
