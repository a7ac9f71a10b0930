"""The notation: products as einsums over named axes, and the little arithmetic that counts need.

Sizes are ints (exact, every report), numpy arrays (a sweep) or sympy expressions (the formula itself): counts only
add, multiply, halve and round up, so one code serves all three. Never int64 for counts: it wraps silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

from tfacct import workload

Size: TypeAlias = Any
"""An int, a numpy array or a sympy expression."""
Axes: TypeAlias = Mapping[str, Size]
Letters: TypeAlias = tuple[str, ...]
Mask: TypeAlias = Literal["full", "causal"]


class SpecError(ValueError):
    """A spec that cannot be a product, a table or a state: our mistake, never a user's."""


class Einsum(NamedTuple):
    """A product of two operands, axis by axis."""

    left: Letters
    right: Letters
    out: Letters
    every: Letters  # each axis once: their product is the number of multiply-adds

    @property
    def contracts(self) -> bool:
        """Whether an axis is summed over: an outer product, the gradient of a product of vectors, has none."""
        return not set(self.every) <= set(self.out)


@cache
def letters(spec: str) -> Letters:
    """The axes of one operand: `B T D` → ("B", "T", "D"). No axis twice."""
    axes = tuple(spec.split())
    for axis in axes:
        if not re.fullmatch("[A-Z][a-z]*", axis):
            raise SpecError(f"{spec!r}: {axis!r} is no axis; an axis is a capital and optional small letters")
    if len(set(axes)) < len(axes):
        raise SpecError(f"{spec!r}: an axis stands twice in one operand")
    return axes


def stored(path: str, spec: str) -> Letters:
    """The axes of something that is stored once: none of them may belong to the workload."""
    axes = letters(spec)
    if any(axis in workload.AXES for axis in axes):
        raise SpecError(f"{path}: a parameter {spec!r} cannot grow with the workload")
    return axes


@cache
def einsum(spec: str) -> Einsum:
    """Parse `left, right -> out`, and refuse what cannot be a matrix product.

    Every axis stands in at least two of the three operands (else it would be summed or copied on the side). With the
    rule that one of them is contracted, almost every one-letter slip is caught here.
    """
    match = re.fullmatch("([^,>-]+),([^,>-]+)->([^,>-]+)", spec)
    if match is None:
        raise SpecError(f"{spec!r} is not `left, right -> out`")
    left, right, out = (letters(part.strip()) for part in match.groups())
    every = tuple(dict.fromkeys(left + right + out))
    for axis in every:
        if (axis in left) + (axis in right) + (axis in out) < 2:
            raise SpecError(f"{spec!r}: axis {axis} stands in one operand only")
    return Einsum(left, right, out, every)


def size(axes: Axes, names: Letters) -> Size:
    """The number of elements of an operand with these axes."""
    return prod(axes[name] for name in names)


def divided(whole: Size, parts: Size) -> Size:
    """`whole / parts` that comes out even. `//` on a symbol would wrap it in a floor."""
    symbolic = hasattr(whole, "free_symbols") or hasattr(parts, "free_symbols")
    return whole / parts if symbolic else whole // parts


def halve(value: Size) -> Size:
    """Half of an even count."""
    return divided(value, 2)


def ratio(part: Size, whole: Size) -> Size:
    """`part / whole`: an exact fraction of ints and of arrays of ints, and whatever floats and symbols make of it."""
    exact = all(isinstance(n, (int, Fraction)) or getattr(n, "dtype", None) == "O" for n in (part, whole))
    return part * Fraction(1) / whole if exact else part / whole


def smaller(one: Size, other: Size) -> Size:
    """The smaller of two sizes."""
    if hasattr(one, "free_symbols") or hasattr(other, "free_symbols"):
        from sympy import Min

        return Min(one, other)
    if hasattr(one, "dtype") or hasattr(other, "dtype"):
        import numpy as np

        return np.minimum(one, other)
    return min(one, other)


def seen(queries: Size, keys: Size, window: Size) -> Size:
    """Keys that `queries` new tokens meet in a window: themselves, and the old ones that the first of them sees."""
    return queries + smaller(keys - queries, window - 1)


def pairs(mask: Mask, queries: Size, keys: Size, window: Size | None = None) -> Size:
    """Query–key pairs that a mask keeps, of the last `queries` positions among `keys`.

    causal: the n-th position sees n keys, so the first n see n·(n + 1)/2 together. In a window it sees at most
    `window`: past it every position adds that many.
    """
    if mask == "full":
        return queries * keys
    if window is None:
        return halve(queries * (2 * keys - queries + 1))

    def first(positions: Size) -> Size:
        growing = smaller(positions, window)
        return halve(growing * (growing + 1)) + (positions - growing) * window

    return first(keys) - first(keys - queries)


def whole_bytes(elements: Size, width: int) -> Size:
    """Bytes that hold `elements` of `width` bits, rounded up; a symbol is not rounded."""
    if width % 8 == 0:
        return elements * (width // 8)
    if hasattr(elements, "free_symbols"):
        return elements * width / 8
    return -(-elements * width // 8)
