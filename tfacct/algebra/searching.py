"""Solutions of equations for a config field, by search, because fields have no symbols."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tfacct.accounts.metrics import Point
from tfacct.algebra.equations import Equation
from tfacct.algebra.solving import NoSolutionError, Solution, among, crossings, sign, stays
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import divisors
from tfacct.ledger.lines import CHUNK, RATES
from tfacct.ledger.workload import LARGEST

TRIED = 1024
"""Least number of values that are tried one by one, if valid values are not the multiples of one number."""
FIRST = 64
"""Smallest values that are all tried, before powers of two."""
CHUNKS_AROUND = 64
"""Chunks before and after the boundary with edges that are checked, because padding makes counts jump there."""
AROUND = 8
"""Values on either side of the boundary that are checked, because bytes of narrow tensors are rounded."""


@record
class Found:
    """A solution and the values that were searched: multiples of `step`, or the list `among`."""

    solution: Solution
    step: int | None
    among: list[int]


def searched(unknown: str, equation: Equation, at: Callable[[int], Point], given: int) -> Found:
    """Solve for a field with value `given` in the config. `at` raises ConfigError for invalid values.

    Raises NoSolutionError with the reason.
    """

    at = cache(at)

    def can_be(value: int) -> bool:
        try:
            at(value)
        except ConfigError:
            return False
        return True

    step = next((n for n in divisors([given]) if all(can_be(given + i * n) for i in (1, 2, 3))), None)
    if step is None:
        values = [value for value in range(1, max(TRIED, 4 * given) + 1) if can_be(value)]
        if len(values) == 1:
            at(given + 1)  # raises ConfigError with the reason
        return Found(among(unknown, equation, at, values), None, values)
    return Found(_among_multiples(unknown, equation, at, can_be, given, step), step, [])


def searched_multiples(unknown: str, equation: Equation, at: Callable[[int], Point], step: int = 1) -> Solution:
    """Solution for a context or batch among multiples of `step`, for sides that are not polynomials. Raises
    NoSolutionError."""
    return _among_multiples(unknown, equation, at, lambda _: True, step, step)


def _among_multiples(
    unknown: str,
    equation: Equation,
    at: Callable[[int], Point],
    can_be: Callable[[int], bool],
    given: int,
    step: int,
) -> Solution:
    """Last multiple of `step` before the sides cross."""
    probes = _probes(can_be, given // step, step)
    differences = [equation.difference(at(value)) for value in probes]
    if len(set(differences)) == 1:
        raise NoSolutionError(f"{equation}: neither side depends on {unknown}")
    signs = list(map(sign, differences))
    turns = crossings(signs)
    tried = f"{unknown} was tried from {probes[0]:,} to {probes[-1]:,}"
    compressed = at(probes[0]).ledger.period if step == 1 and unknown == "ctx" else 1
    if len(turns) > 1 and (compressed == 1 or signs[0] == signs[-1]):
        raise NoSolutionError(f"{equation}: the two sides cross more than once", tried)
    if not turns:
        if not signs[-1]:
            raise NoSolutionError(
                f"{equation}: the two sides become equal and stay equal, however large {unknown} is", tried
            )
        raise NoSolutionError(f"{equation}: {stays(equation, signs[-1])}", tried)
    low, high = probes[turns[0]] // step, probes[turns[0] + 1] // step
    after = signs[turns[0] + 1]

    def past(value: int) -> bool:
        return sign(equation.difference(at(value * step))) == after

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if past(middle) else (middle, high)
    lengths, rates = _lengths(at(low * step))
    edges = (
        number * length
        for length in (lengths | rates if step == 1 else ())
        for number in range(low // length - CHUNKS_AROUND, high // length + CHUNKS_AROUND)
    )
    turning = [value for edge in edges for value in (edge - 1, edge, edge + 1)]
    tried_near = [*range(low - AROUND, high + AROUND + 1), *turning]
    near = [value for value in tried_near if value > 0 and can_be(value * step)]
    if all(past(value) == (value >= high) for value in near):
        return Solution(low * step, high * step, rises=after > 0)
    ends = _of_each_rest(past, low, compressed)
    if ends is None:
        why = "rounding makes the sides cross more than once"
        if rates and unknown == "ctx":
            why = "the sides cross more than once, because counts jump each time a compressed key is complete"
        raise NoSolutionError(f"{equation}: near {unknown} = {low * step:,} {why}")
    first, last = min(ends), max(ends) - compressed
    return Solution(first - 1, first, rises=after > 0, again=last if last > first else None)


def _of_each_rest(past: Callable[[int], bool], near: int, period: int) -> list[int] | None:
    """For each remainder modulo `period`, the first number that is `past`.

    Numbers with the same remainder have equally many tokens waiting for compression, so counts grow evenly. None if
    `period` is too large, or the sides cross more than once for a remainder.
    """
    if not 1 < period <= TRIED:
        return None
    ends = []
    for start in range(near, near + period):
        if (end := _first(past, start, period)) is None:
            return None
        around = (end + number * period for number in range(-AROUND, AROUND + 1))
        if any(past(value) != (value >= end) for value in around if value > 0):
            return None
        ends.append(end)
    return ends


def _first(past: Callable[[int], bool], start: int, period: int) -> int | None:
    """First number start + n · `period` that is `past`, searched from `start` outwards; None if there is none."""
    reach = period
    if past(start):
        while start - reach > 0 and past(start - reach):
            reach *= 2
        low, high = start - reach, start
    else:
        while not past(start + reach):
            reach *= 2
            if reach > 2 * LARGEST:
                return None
        low, high = start, start + reach
    while high - low > period:
        middle = low + (high - low) // (2 * period) * period
        low, high = (low, middle) if middle > 0 and past(middle) else (middle, high)
    return high


def _probes(can_be: Callable[[int], bool], given: int, step: int) -> list[int]:
    """Valid multiples of `step`: all small ones, because a share may fall and rise again there, then about powers of
    two."""
    first = [value for value in range(1, FIRST + 1) if can_be(value * step)]
    below, above = [given], [given]
    while below[0] > 1 and can_be(below[0] // 2 * step):
        below.insert(0, below[0] // 2)
    while above[-1] * 2 * step <= LARGEST and can_be(above[-1] * 2 * step):
        above.append(above[-1] * 2)
    smallest = _last(below[0], 0, lambda value: can_be(value * step))
    largest = _last(above[-1], above[-1] * 2, lambda value: can_be(value * step))
    return [value * step for value in sorted({smallest, *first, *below, *above, largest})]


def _last(inside: int, outside: int, can_be: Callable[[int], bool]) -> int:
    """Valid number nearest to `outside`, which is invalid."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if can_be(middle) else (inside, middle)
    return inside


def _lengths(point: Point) -> tuple[set[int], set[int]]:
    """Tokens per chunk of recurrences, and tokens per compressed key."""
    axes = [group.axes for group in point.ledger.groups]
    chunks, rates = (
        {sizes[name] for sizes in axes for name in names if isinstance(sizes.get(name), int) and sizes[name] > 1}
        for names in ((CHUNK,), tuple(RATES.values()))
    )
    return {max(chunks)} if chunks else set(), rates
