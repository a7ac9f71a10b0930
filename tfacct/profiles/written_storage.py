"""Tensors in memory, as a class that is written out makes them: counted as long as something refers to them."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from tfacct.ledger.kept import Role

Axes: TypeAlias = tuple[str, ...]
Kind: TypeAlias = tuple[str, Role]
ORDER = {axis: place for place, axis in enumerate(("B", "N", "K", "T", "S", "J", "H", "D"))}


def spec_of(axes: Axes) -> str:
    """Axes as lines have them: the same, in whatever order they lie."""
    return " ".join(sorted(axes, key=lambda axis: (ORDER.get(axis.partition("+")[0], len(ORDER)), axis)))


class Storage:
    """A tensor in memory, by its axes in the order in which they lie, and its dtype rule. `path`: its name, where it is
    kept. `sign`: -1 of what another lacks. `times`: how many such tensors there are, by a letter, if not one. `line`:
    the axes of the line that says what is kept, which may be that of several."""

    __slots__ = ("kind", "laid", "line", "path", "sign", "there")

    def __init__(
        self,
        there: Counter[Kind],
        laid: Axes,
        role: Role,
        path: str = "",
        sign: int = 1,
        times: str = "",
        line: Axes = (),
    ) -> None:
        self.there, self.laid, self.path, self.sign = there, laid, path, sign
        self.kind: Kind = (spec_of((*laid, times) if times else laid), role)
        self.line: Kind = (spec_of(line), role) if line else self.kind
        there[self.kind] += sign

    def __del__(self) -> None:
        self.there[self.kind] -= self.sign

    @property
    def role(self) -> Role:
        """Dtype rule."""
        return self.kind[1]

    @property
    def parts(self) -> tuple[Storage, ...]:
        """What it consists of."""
        return (self,)


class Joint(Storage):
    """A tensor of several parts in memory, or a piece of one that lies otherwise. Axes that are no letters of a piece
    stand for what lies between its numbers."""

    __slots__ = ("of",)

    def __init__(self, of: tuple[Storage, ...], laid: Axes) -> None:
        self.of, self.laid, self.path, self.there = of, laid, "", of[0].there
        self.kind = "", of[0].role

    def __del__(self) -> None:
        pass

    @property
    def parts(self) -> tuple[Storage, ...]:
        """What it consists of."""
        return self.of
