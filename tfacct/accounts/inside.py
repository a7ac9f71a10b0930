"""Bytes inside one section of a pass, by how far its operations have come: each line's are added up once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Held, Kept, Moment, Role, Section, bytes_of
from tfacct.ledger.storage import Width

NOTHING: Sequence[Size] = ()
Within: TypeAlias = tuple[str, Size, Size, Size, bool]
"""A moment of one block: what runs, bytes kept by its own lines, held, and of new gradients, and its `after`."""


def totals(found: Iterable[Within]) -> list[Size]:
    """Bytes of all together, at each of some moments."""
    return [kept + held + new for _, kept, held, new, _ in found]


class Sizes(dict[tuple[str, Role], Size]):
    """Bytes of tensors by their axes and role: those of one kind are worked out once."""

    def __init__(self, axes: Axes, pass_: Width) -> None:
        self.axes, self.pass_ = axes, pass_

    def __missing__(self, kind: tuple[str, Role]) -> Size:
        found = self[kind] = bytes_of(*kind, self.axes, self.pass_)
        return found


class Inside:
    """One section: the places of its operations, and what is kept up to each, but for lines of `known` names, which are
    counted elsewhere. `others`: sections whose tensors may be as large."""

    def __init__(
        self, section: Section, at: Axes, pass_: Width, *, known: str = "", others: Iterable[Inside] = ()
    ) -> None:
        self.axes: Axes = {**section.axes, **at}
        alike = (each.sizes for each in others if each.axes == self.axes)
        sizes = next(alike, None) or Sizes(self.axes, pass_)
        self.sizes: Sizes = sizes
        self.run, order = section.run, section.run.order
        place = self.place = dict(zip(reversed(order), range(len(order) - 1, -1, -1), strict=True))
        first = self.first = dict[str, int]()  # place of the first operation that needs a line
        added: list[Size] = [0] * (len(order) or 1)
        for line in section.run.kept:
            if len(line.by) == 1:
                needed = place.get(line.by[0])
            else:
                needed = min([place[name] for name in line.by if name in place], default=None)
            if needed is not None:
                first[line.path] = needed
                if line.path != known:
                    added[needed] += line.times * sizes[line.spec, line.role]
        if known:
            first[known] = 0
        self.up_to = [*accumulate(added)]
        self.remade = self._remade() if section.run.remade else ()

    def _remade(self) -> Sequence[Size]:
        """Bytes that attention makes anew where it runs again, by the place of the operation that it has come to."""
        added: list[Size] = [0] * len(self.run.order)
        for line in self.run.remade:
            added[min([self.place[name] for name in line.by])] += self.bytes(line)
        return [*accumulate(added)]

    def bytes(self, tensor: Held | Kept) -> Size:
        """Bytes of a tensor."""
        return tensor.times * self.sizes[tensor.spec, tensor.role]

    def all(self, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of several."""
        sizes = self.sizes
        return sum([each.times * sizes[each.spec, each.role] for each in tensors])

    def within(
        self,
        moments: Iterable[Moment],
        always: Size = 0,
        stream: Size = 0,
        new: tuple[Sequence[Size], Sequence[Size]] | None = None,
    ) -> list[Within]:
        """What there is at moments. `always` is held at each, `stream` at those that are not alone; `new`: bytes of
        gradients by the place of an operation, its own among them or not."""
        place, first, up_to, sizes, remade = self.place, self.first, self.up_to, self.sizes, self.remade
        both, (done_there, left_there) = always + stream, new or (NOTHING, NOTHING)
        found = []
        for at, tensors, done, after, alone, again in moments:
            here = place[at]
            held = always if alone else both
            for spec, role, times, path in tensors:
                if not path or first.get(path, here + 1) > here:
                    held += times * sizes[spec, role]
            if again:
                held += remade[place[again]]
            made = done_there if done else left_there
            found.append((at, up_to[here], held, made[here] if new else 0, after))
        return found

    @cached_property
    def stops(self) -> list[int]:
        """Places of operations that have moments of their own, and the end."""
        return [*sorted({self.place[moment.at] for moment in self.run.moments}), len(self.run.order)]

    def together(self, behind: Sequence[Size]) -> list[Size]:
        """Of sums behind each place, the share of an operation and those behind it that have no moments of their own:
        they run as one."""
        ends = (self.stops[bisect_right(self.stops, place)] for place in range(len(self.run.order)))
        return [behind[place] - behind[end] for place, end in enumerate(ends)]

    def late(self, biases: Mapping[str, Size], again: RanAgain) -> dict[str, Size]:
        """Bytes of biases' gradients by the operation of a moment, no more than what their products read: they come
        last, and what was made again for a product is gone by then."""
        found = {}
        for place in {bisect_right(self.stops, self.place[name]) - 1 for name in biases if name in self.place}:
            together = self.run.order[self.stops[place] : self.stops[place + 1]] if place >= 0 else ()
            apart = [
                operation
                for operation in together
                if operation not in again.stay
                and all(line.by[0] in together for line in again.needed.get(operation, ()))
            ]
            last = sum(biases.get(operation, 0) for operation in apart)
            lines = {line.path: line for operation in apart for line in again.needed.get(operation, ())}
            if together:
                found[together[0]] = min(last, self.all(lines.values()), key=int)
        return found


class RanAgain:
    """What is made again by the operations that need it, and operations that need what was there all the time."""

    def __init__(self, remade: Iterable[Kept], there: Iterable[Kept]) -> None:
        self.needed: dict[str, list[Kept]] = {}
        for line in remade:
            for operation in line.by:
                self.needed.setdefault(operation, []).append(line)
        self.stay = frozenset(operation for line in there for operation in line.by)


def suffixes(order: Iterable[str], kind: int, gradients: Mapping[tuple[int, str], Size]) -> list[Size]:
    """Bytes of the gradients that are finished once a place of the order is, and beyond the last: none."""
    sizes = [gradients.get((kind, name), 0) for name in order]
    return [*accumulate(reversed(sizes), initial=0)][::-1]
