"""Bytes inside one section of a pass, by how far its operations have come: each line's are added up once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Held, Kept, Moment, Role, Section
from tfacct.ledger.storage import Width


class Inside:
    """One section: the places of its operations, and what is kept up to each."""

    def __init__(self, section: Section, at: Axes, pass_: Width) -> None:
        self.axes, self.pass_ = {**section.axes, **at}, pass_
        self.sizes: dict[tuple[str, Role, int], Size] = {}  # of tensors' kinds
        order = section.run.order
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
        kind = tensor.spec, tensor.role, tensor.times
        found = self.sizes.get(kind)
        if found is None:
            found = self.sizes[kind] = tensor.bytes(self.axes, self.pass_)
        return found

    def all(self, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of several."""
        return sum(self.bytes(tensor) for tensor in tensors)

    def at(self, moment: Moment, known: frozenset[str]) -> tuple[Size, Size]:
        """Bytes kept by the section's own lines at a moment, and held there. Tensors of `known` names are counted."""
        place, first = self.place[moment.at], self.first
        kept, held = self.up_to[place], 0
        for name in known:
            if name in first and first[name] <= place:
                kept -= self.own[name]
        for each in moment.held:
            if not each.path or (each.path not in known and first.get(each.path, place + 1) > place):
                held += self.bytes(each)
        return kept, held


def suffixes(order: Iterable[str], kind: int, gradients: Mapping[tuple[int, str], Size]) -> list[Size]:
    """Bytes of the gradients that are finished once a place of the order is, and beyond the last: none."""
    sizes = [gradients.get((kind, name), 0) for name in order]
    return [*accumulate(reversed(sizes), initial=0)][::-1]
