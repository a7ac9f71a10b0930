"""Bytes inside one section of a pass, by how far its operations have come: each line's are added up once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Held, Kept, Moment, Role, Section, bytes_of
from tfacct.ledger.storage import Width


class Within(NamedTuple):
    """Bytes at a moment of one block: kept by its own lines, held, and of new gradients. `after`: as in a Moment."""

    at: str
    kept: Size
    held: Size
    new: Size
    after: bool = False

    @property
    def total(self) -> Size:
        """Bytes of all together."""
        return self.kept + self.held + self.new

    def beside(self, kept: Size, held: Size) -> Within:
        """The same beside more that is kept and held."""
        return Within(self.at, self.kept + kept, self.held + held, self.new, self.after)


class Inside:
    """One section: the places of its operations, and what is kept up to each."""

    def __init__(self, section: Section, at: Axes, pass_: Width) -> None:
        self.axes, self.pass_ = {**section.axes, **at}, pass_
        self.sizes: dict[tuple[str, Role], Size] = {}  # of tensors' kinds
        self.run, order = section.run, section.run.order
        self.place = {name: number for number, name in reversed([*enumerate(order)])}
        self.first: dict[str, int] = {}  # place of the first operation that needs a line
        self.own: dict[str, Size] = {}
        added: list[Size] = [0] * (len(order) or 1)
        for line in section.run.kept:
            needed = [self.place[name] for name in line.by if name in self.place]
            if needed:
                self.first[line.path], self.own[line.path] = min(needed), self.bytes(line)
                added[min(needed)] += self.own[line.path]
        self.up_to = [*accumulate(added)]

    def bytes(self, tensor: Held | Kept) -> Size:
        """Bytes of a tensor; those of one kind are worked out once."""
        kind = tensor.spec, tensor.role
        found = self.sizes.get(kind)
        return tensor.times * (self._size(*kind) if found is None else found)

    def _size(self, spec: str, role: Role) -> Size:
        found = self.sizes[spec, role] = bytes_of(spec, role, self.axes, self.pass_)
        return found

    def all(self, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of several."""
        return sum([self.bytes(tensor) for tensor in tensors])

    def at(self, moment: Moment, known: frozenset[str]) -> tuple[Size, Size]:
        """Bytes kept by the section's own lines at a moment, and held there. Tensors of `known` names are counted."""
        place, first = self.place[moment.at], self.first
        kept, held = self.up_to[place], 0
        for name in known:
            if name in first and first[name] <= place:
                kept -= self.own[name]
        sizes = self.sizes
        for spec, role, times, path in moment.held:
            if not path or (path not in known and first.get(path, place + 1) > place):
                size = sizes.get((spec, role))
                held += times * (self._size(spec, role) if size is None else size)
        return kept, held

    @cached_property
    def stops(self) -> list[int]:
        """Places of operations that have moments of their own, and the end."""
        return [*sorted({self.place[moment.at] for moment in self.run.moments}), len(self.run.order)]

    def together(self, at: str) -> tuple[str, ...]:
        """An operation and those behind it that have no moments of their own: they run as one."""
        own = self.place[at]
        return self.run.order[own : self.stops[bisect_right(self.stops, own)]]

    def late(self, at: str, biases: Mapping[str, Size], again: RanAgain) -> Size:
        """Bytes of biases' gradients at a moment, no more than what their products read: they come last, and what was
        made again for a product is gone by then."""
        together = self.together(at)
        if biases.keys().isdisjoint(together):
            return 0
        apart = [
            operation
            for operation in together
            if operation not in again.stay and all(line.by[0] in together for line in again.needed.get(operation, ()))
        ]
        last = sum(biases.get(operation, 0) for operation in apart)
        lines = {line.path: line for operation in apart for line in again.needed.get(operation, ())}
        return min(last, self.all(lines.values()), key=int)


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
