"""Integers that record their factors: a ledger evaluated with them gives its derivation (`--explain`).

The same code that counts also gives the count in symbols (`2·B·T·D·N·H`) and in numbers (`2 · 1 · 1,024 · 768 · 12 ·
64`). Unlike sympy's symbols, they support `min`, masks and rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, SupportsInt

TIMES, SPACED = "·", " · "


class Factor(NamedTuple):
    """A factor in symbols and in numbers. `sum`: it needs brackets in a product.

    `axis`: name of the axis, empty for a number or a sum. `blocks`: it counts layers.
    """

    symbols: str
    numbers: str
    value: int
    axis: str = ""
    sum: bool = False
    blocks: bool = False


class TracedInt(int):
    """An int with its factors. Arithmetic with it gives TracedInts.

    >>> heads, keys = axis("N", 12), axis("S", 1024)
    >>> scores = 2 * heads * keys
    >>> int(scores), in_axes(scores.factors), in_numbers(scores.factors)
    (24576, '2·N·S', '2 · 12 · 1,024')

    A quotient that is rounded up is written with brackets:

    >>> blocks = -(-keys // 24)
    >>> int(blocks), in_axes((17 * blocks).factors)
    (43, '17·⌈S / 24⌉')
    """

    factors: tuple[Factor, ...]
    minus: bool

    def __new__(cls, value: SupportsInt, factors: Sequence[Factor], minus: bool = False) -> TracedInt:
        made = super().__new__(cls, int(value))
        made.factors, made.minus = tuple(factors), minus
        return made

    def __mul__(self, other: int) -> TracedInt:
        minus = self.minus != (isinstance(other, TracedInt) and other.minus)
        return TracedInt(int(self) * int(other), (*self.factors, *factors_of(other)), minus)

    def __rmul__(self, other: int) -> TracedInt:
        return TracedInt(int(other) * int(self), (*factors_of(other), *self.factors), self.minus)

    def __add__(self, other: int) -> TracedInt:
        return _sum(self, other, "+") if other else self

    def __radd__(self, other: int) -> TracedInt:
        return _sum(other, self, "+") if other else self

    def __sub__(self, other: int) -> TracedInt:
        return _sum(self, other, "−")

    def __rsub__(self, other: int) -> TracedInt:
        return _sum(other, self, "−")

    def __neg__(self) -> TracedInt:
        return TracedInt(-int(self), self.factors, not self.minus)

    def __floordiv__(self, other: int) -> TracedInt:
        """Quotient rounded down; of a negative dividend it is written as one that is rounded up."""
        value = int(self) // int(other)
        if (rest := _without(self.factors, factors_of(other))) is not None:
            return TracedInt(value, rest, self.minus)
        over, numbers = (f"{_operand(self, how)} / {_operand(other, how)}" for how in (in_axes, in_numbers))
        if self.minus:
            return TracedInt(value, [Factor(f"⌈{over}⌉", f"⌈{numbers}⌉", -value)], minus=True)
        if int(self) % int(other):
            return TracedInt(value, [Factor(f"⌊{over}⌋", f"⌊{numbers}⌋", value)])
        return TracedInt(value, [Factor(over, numbers, value, sum=True)])


def axis(name: str, value: int) -> TracedInt:
    """Size of an axis."""
    return TracedInt(value, [Factor(name, f"{value:,}", value, name)])


def blocks(name: str, value: int, word: str) -> TracedInt:
    """Number of layers of an axis, followed by `word` in numbers."""
    return TracedInt(value, [Factor(name, f"{value:,} {word}", value, name, blocks=True)])


def factors_of(value: int) -> tuple[Factor, ...]:
    """Factors of a number; empty for a plain 1."""
    if isinstance(value, TracedInt):
        return value.factors
    return () if value == 1 else (Factor(f"{value:,}", f"{value:,}", value),)


def ordered(factors: Iterable[Factor], axes: Sequence[str]) -> list[Factor]:
    """Factors in the order of a product: numbers, axes in the order of `axes`, sums."""

    def rank(factor: Factor) -> tuple[int, int]:
        if factor.axis:
            return 1, axes.index(factor.axis) if factor.axis in axes else 0
        return (2 if factor.sum or not factor.symbols.isdigit() else 0), 0

    return sorted(factors, key=rank)


def in_axes(factors: Iterable[Factor], axes: Sequence[str] = ()) -> str:
    """Product in symbols: `2·B·T·D`."""
    return _product(ordered(factors, axes), TIMES, lambda factor: factor.symbols)


def in_numbers(factors: Iterable[Factor], axes: Sequence[str] = ()) -> str:
    """Product in numbers: `2 · 1 · 1,024 · 768`."""
    return _product(ordered(factors, axes), SPACED, lambda factor: factor.numbers)


def joined(factors: Sequence[Factor], made: Mapping[Factor, Sequence[str]]) -> list[Factor]:
    """Factors with products replaced by derived axes: N for K · G."""
    left = list(factors)
    for product, parts in made.items():
        while (found := [next((f for f in left if f.axis == part), None) for part in parts]) and None not in found:
            at = min(left.index(part) for part in found if part is not None)
            for part in found:
                left.remove(part)  # type: ignore[arg-type]
            left.insert(at, product)
    return left


def _product(factors: Sequence[Factor], times: str, how: Callable[[Factor], str]) -> str:
    alone = len(factors) == 1
    return times.join(f"({how(one)})" if one.sum and not alone else how(one) for one in factors) or "1"


def _sum(one: int, other: int, sign: str) -> TracedInt:
    value = int(one) + int(other) if sign == "+" else int(one) - int(other)
    symbols, numbers = (
        f"{how(factors_of(one))} {sign} {_operand(other, how) if sign == '−' else how(factors_of(other))}"
        for how in (in_axes, in_numbers)
    )
    return TracedInt(value, [Factor(symbols, numbers, value, sum=True)])


def _operand(value: int, how: Callable[[Iterable[Factor]], str]) -> str:
    """Number as an operand of − or /: a sum in brackets."""
    factors = factors_of(value)
    return f"({how(factors)})" if len(factors) == 1 and factors[0].sum else how(factors)


def _without(factors: Sequence[Factor], others: Sequence[Factor]) -> list[Factor] | None:
    """Factors without `others`; None if one of those is missing."""
    left = list(factors)
    for other in others:
        if other not in left:
            return None
        left.remove(other)
    return left
