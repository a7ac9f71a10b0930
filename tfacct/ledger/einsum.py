"""Einsum notation with named axes, and the arithmetic for counts.

The notation is Einstein summation written with named axes, as in einops (A. Rogozhnikov, "Einops: Clear and Reliable
Tensor Manipulations with Einstein-like Notation", ICLR 2022). Here it only gives sizes; nothing is run.

Sizes are ints (exact, in reports), numpy arrays (sweeps) or sympy expressions (formulas). Counts only add, multiply,
halve and round up, so the same code serves all three. Never use int64 for counts: it wraps silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from math import gcd, isqrt, prod
from typing import Any, Literal, NamedTuple, TypeAlias

from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option, setting
from tfacct.ledger import workload

Size: TypeAlias = Any
"""An int, a numpy array or a sympy expression."""
Axes: TypeAlias = Mapping[str, Size]
AxisNames: TypeAlias = tuple[str, ...]
Mask: TypeAlias = Literal["full", "causal", "chunks", "chosen", "near", "prefix", "blocks", "entries", "chosen entries"]


AXIS = re.compile("[A-Z][a-z]*[0-9]*")
"""Syntax of an axis: a capital, small letters, and a number if needed to be unique."""
SUM = re.compile(rf"({AXIS.pattern})\+({AXIS.pattern})-([0-9]+)")
"""Syntax of a padded dimension: `T+Kc-1`. Only tensors of a training step have one."""


class SpecError(ValueError):
    """An invalid einsum or tensor spec: a bug in this package, not an error of a user."""


class Einsum(NamedTuple):
    """Axes of a matrix product: of both operands, of the result, and all of them.

    Made by `einsum(spec)`.
    """

    left: AxisNames
    right: AxisNames
    out: AxisNames
    every: AxisNames  # each axis once; the product of their sizes is the number of multiply-adds

    @property
    def contracts(self) -> bool:
        """True if an axis is summed over; false for an outer product."""
        return not set(self.every) <= set(self.out)


@cache
def axis_names(spec: str) -> AxisNames:
    """Axes of one operand: `B T D` → ("B", "T", "D"). Raises SpecError for a repeated axis."""
    axes = tuple(spec.split())
    for axis in axes:
        if not AXIS.fullmatch(axis):
            raise SpecError(f"{spec!r}: {axis!r} is not an axis; write a capital letter and optional lowercase letters")
    if len(set(axes)) < len(axes):
        raise SpecError(f"{spec!r}: an axis is twice in one operand")
    return axes


def renamed(spec: str, names: Mapping[str, str]) -> str:
    """Spec with axes renamed: `B T D` with {"T": "I"} is `B I D`."""
    return AXIS.sub(lambda axis: names.get(axis[0], axis[0]), spec) if names else spec


def evaluated(sum_: str, axes: Axes) -> Size:
    """Value of a sum of products of axes such as `Rt + 2 · Ns`."""
    return sum(prod(axes[n] if isinstance(n, str) else n for n in product) for product in _products(sum_))


@cache
def _products(sum_: str) -> tuple[tuple[int | str, ...], ...]:
    products = ([factor.strip() for factor in product.split("·")] for product in sum_.split("+"))
    return tuple(tuple(int(factor) if factor.isdigit() else factor for factor in product) for product in products)


def stored(path: str, spec: str) -> AxisNames:
    """Axes of a stored tensor. Raises SpecError for an axis of the workload."""
    axes = axis_names(spec)
    if any(axis in workload.OF_STEPS for axis in axes):
        raise SpecError(f"{path}: a parameter {spec!r} cannot grow with the workload")
    return axes


@cache
def einsum(spec: str) -> Einsum:
    """Parse `left, right -> out`. Raises SpecError for anything that cannot be a matrix product.

    An axis is a capital letter, followed by small letters if needed:

    >>> projection = einsum("B T D, D N H -> B T N H")
    >>> projection.left, projection.right, projection.out
    (('B', 'T', 'D'), ('D', 'N', 'H'), ('B', 'T', 'N', 'H'))

    The number of multiply-adds is the product of all axes, each taken once:

    >>> projection.every
    ('B', 'T', 'D', 'N', 'H')

    Every axis must be in at least two of the three operands; otherwise it would be summed or copied outside the
    product. With the rule that one axis is contracted (see `Matmul`), this catches almost every typo of one letter:

    >>> einsum("B T D, D N H -> B T N")
    Traceback (most recent call last):
    tfacct.ledger.einsum.SpecError: 'B T D, D N H -> B T N': axis H is in one operand only
    """
    match = re.fullmatch("([^,>-]+),([^,>-]+)->([^,>-]+)", spec)
    if match is None:
        raise SpecError(f"{spec!r} is not `left, right -> out`")
    left, right, out = (axis_names(part.strip()) for part in match.groups())
    every = tuple(dict.fromkeys(left + right + out))
    for axis in every:
        if (axis in left) + (axis in right) + (axis in out) < 2:
            raise SpecError(f"{spec!r}: axis {axis} is in one operand only")
    return Einsum(left, right, out, every)


def size(axes: Axes, names: AxisNames) -> Size:
    """Number of elements of a tensor with these axes."""
    return prod(map(axes.__getitem__, names))


def elements(axes: Axes, spec: str) -> Size:
    """Number of elements of a tensor; dimensions may be padded.

    >>> elements({"B": 2, "T": 7, "Kc": 4}, "B T+Kc-1")
    20
    """
    if "+" not in spec:
        return size(axes, axis_names(spec))
    found: Size = 1
    for dimension in spec.split():
        padded = SUM.fullmatch(dimension)
        found *= axes[dimension] if padded is None else axes[padded[1]] + axes[padded[2]] - int(padded[3])
    return found


def same(one: Size, other: Size) -> bool:
    """True if two sizes are equal; arrays must be equal in every element."""
    if one is other:
        return True
    equal: Any = one == other
    return bool(equal.all() if hasattr(equal, "all") else equal)


def divisors(sizes: Iterable[int]) -> list[int]:
    """Common divisors in ascending order.

    >>> divisors([32, 8, 28672])
    [1, 2, 4, 8]
    """
    common = gcd(*sizes)
    small = [n for n in range(1, isqrt(common) + 1) if common % n == 0]
    return sorted({*small, *(common // n for n in small)})


def is_symbolic(*sizes: Size) -> bool:
    """True if one of the sizes is a sympy expression."""
    return any(hasattr(size, "free_symbols") for size in sizes)


def divided(dividend: Size, divisor: Size) -> Size:
    """Quotient of a division without remainder. (`//` on a symbol would wrap it in a floor.)"""
    return dividend / divisor if is_symbolic(dividend, divisor) else dividend // divisor


def shared(tokens: Size, parts: Size, front: Size = 0) -> Size:
    """Number of groups of `parts` tokens, without the first `front` tokens. Raises UsageError if tokens are left over.

    >>> shared(576, 4)
    144
    """
    tokens = tokens - front
    if is_symbolic(tokens, parts):
        return divided(tokens, parts)
    if not same(tokens % parts, tokens * 0):
        less = f" minus {front:,}" if not same(front, 0) else ""
        given = f"a context of {tokens + front:,}" if isinstance(tokens, int) else "a context here"
        more = f"use {option('ctx', rounded_up(tokens, parts) * parts + front)}" if isinstance(tokens, int) else None
        problem = f"{given}{less} is not a multiple of {parts:,}: positions are merged in groups of {parts:,}"
        raise UsageError(problem, more)
    return divided(tokens, parts)


def rounded_up(dividend: Size, divisor: Size) -> Size:
    """Quotient rounded up; a symbol is not rounded."""
    return dividend / divisor if is_symbolic(dividend) else -(-dividend // divisor)


def rounded_down(dividend: Size, divisor: Size) -> Size:
    """Quotient rounded down; a symbol is not rounded."""
    return dividend / divisor if is_symbolic(dividend) else dividend // divisor


def halve(value: Size) -> Size:
    """Half of an even count."""
    return divided(value, 2)


def ratio(part: Size, total: Size) -> Size:
    """Quotient `part / total`: an exact Fraction for ints and arrays of ints, plain division for floats and symbols."""
    exact = all(isinstance(n, (int, Fraction)) or getattr(n, "dtype", None) == "O" for n in (part, total))
    return part * Fraction(1) / total if exact else part / total


def smaller(one: Size, other: Size) -> Size:
    """Smaller of two sizes, element by element for arrays."""
    if is_symbolic(one, other):
        from sympy import Min

        return Min(one, other)
    if hasattr(one, "dtype") or hasattr(other, "dtype"):
        array = one if hasattr(one, "dtype") else other
        if hasattr(array, "astype") or not hasattr(array, "__array_namespace__"):
            import numpy as xp  # arrays of other libraries take its functions over
        else:
            xp = array.__array_namespace__()
        return xp.minimum(one, other)
    return min(one, other)


def seen(queries: Size, keys: Size, window: Size) -> Size:
    """Number of keys that `queries` new tokens see in a window: their own, and those that the first token sees.

    An unfused kernel multiplies every query with all of them.
    """
    return queries + smaller(keys - queries, window - 1)


def one_by_one(queries: Size, keys: Size) -> Size:
    """Number of new tokens that a recurrence processes one by one: 1 in a decode step, else 0.

    >>> one_by_one(1, 9), one_by_one(5, 9), one_by_one(1, 1)
    (1, 0, 0)
    """
    return (1 - smaller(queries - 1, 1)) * smaller(keys - queries, 1)


def chunks(queries: Size, keys: Size, length: Size) -> Size:
    """Number of chunks that new tokens are padded to; 0 in a decode step, which processes its token alone.

    >>> chunks(65, 65, 64), chunks(3, 9, 64), chunks(1, 9, 64), chunks(1, 1, 64)
    (2, 1, 0, 1)
    """
    return rounded_up(queries, length) * (1 - one_by_one(queries, keys))


def pairs(mask: Mask, queries: Size, keys: Size, window: Size | None = None) -> Size:
    """Number of query–key pairs that a mask leaves visible, for the last `queries` positions of `keys`.

    With a full mask, all pairs:

    >>> pairs("full", 3, 5)
    15

    With a causal mask, position n sees n keys; positions 3, 4 and 5 see 3 + 4 + 5:

    >>> pairs("causal", 3, 5)
    12

    With a window, a position sees at most `window` keys, including its own:

    >>> pairs("causal", 3, 5, window=4)
    11

    With chunks, a position sees the keys of its chunk up to itself; in chunks of 3, positions 3, 4 and 5 see 3 + 1 + 2:

    >>> pairs("chunks", 3, 5, window=3)
    6

    A near mask has a window centred on each position; with an even size, one side has one more key. With 5 positions
    and a window of 3, the first and the last see 2 keys, the others 3:

    >>> pairs("near", 5, 5, window=3), pairs("near", 5, 5, window=2)
    (13, 9)

    Raises ConfigError for `prefix` and `blocks`: the length of a prefix or block depends on the input.
    """
    if mask == "blocks":
        raise ConfigError(
            "visible pairs cannot be counted: tokens see all tokens of their block, and the block length is set at"
            " generation time",
            f"`flops` without {option('masked', True)} counts all pairs",
        )
    if mask == "prefix":
        raise ConfigError(
            "visible pairs cannot be counted: tokens of the prefix see one another (use_bidirectional_attention), and"
            " the config does not give the length of the prefix",
            f"`flops` without {option('masked', True)} counts all pairs; or use"
            f" {setting('use_bidirectional_attention', 'false')} for a text without a prefix",
        )
    if mask == "full":
        return queries * keys
    if mask == "chunks" and window is not None:

        def in_chunks(positions: Size) -> Size:
            whole = positions // window
            rest = positions - whole * window
            return whole * halve(window * (window + 1)) + halve(rest * (rest + 1))

        return in_chunks(keys) - in_chunks(keys - queries)
    if mask == "near" and window is not None:
        before = rounded_down(window - 1, 2) + 1  # both include its own key
        after = window + 1 - before
        return pairs("causal", queries, keys, before) + pairs("causal", queries, queries, after) - queries
    # A position sees as many chosen keys as it would see in a window.
    if window is None:
        return halve(queries * (2 * keys - queries + 1))

    def first(positions: Size) -> Size:
        growing = smaller(positions, window)
        return halve(growing * (growing + 1)) + (positions - growing) * window

    return first(keys) - first(keys - queries)


def compressed_pairs(queries: Size, keys: Size, rate: Size, most: Size | None = None) -> Size:
    """Number of pairs of the last `queries` positions of `keys` with compressed keys of `rate` tokens each.

    A position sees the compressed keys that end at or before it, at most `most` of them.

    With keys of 3 tokens, positions 5, 6 and 7 see 1 + 2 + 2:

    >>> compressed_pairs(3, 7, 3), compressed_pairs(3, 7, 3, most=1)
    (5, 3)
    """

    def first(positions: Size) -> Size:
        compressed = positions // rate
        seen = compressed if most is None else smaller(compressed, most)
        return rate * halve(seen * (seen - 1)) + seen * (positions - seen * rate + 1)

    return first(keys) - first(keys - queries)


def packed_bytes(elements: Size, width: int) -> Size:
    """Bytes of `elements` of `width` bits each, rounded up; a symbol is not rounded."""
    if width % 8 == 0:
        return elements * (width // 8)
    return rounded_up(elements * width, 8)
