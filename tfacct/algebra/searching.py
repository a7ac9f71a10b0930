"""Equations solved for a field of the config, by search, because fields have no symbol."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tfacct.accounts.metrics import Point
from tfacct.algebra.equations import Equation
from tfacct.algebra.solving import NoSolutionError, Solution, among, sign, stays
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import divisors
from tfacct.ledger.lines import CHUNK, RATES
from tfacct.ledger.workload import LARGEST

TRIED = 1024
"""Numbers that are tried one by one, at least, where those that can be are no multiples of one number."""
FIRST = 64
"""First numbers that are all looked at before the boundary is sought between powers of two."""
CHUNKS_AROUND = 64
"""Chunks before and behind at whose edges the sides are looked at: padding makes them leap there."""
AROUND = 8
"""Numbers on either side of the boundary that must stand as their side does: bytes of narrow tensors are rounded."""


@record
class Found:
    """A solution, and the numbers among which it was sought: the multiples of `step`, or `among` these."""

    solution: Solution
    step: int | None
    among: list[int]


def searched(unknown: str, equation: Equation, at: Callable[[int], Point], given: int) -> Found:
    """Solve for a field that is `given` in the config. `at` raises ConfigError for a number that it cannot be.

    Raises NoSolutionError, which says why there is none.
    """

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
            at(given + 1)  # raises: it says why there is no other
        return Found(among(unknown, equation, at, values), None, values)
    return Found(_among_multiples(unknown, equation, at, can_be, given, step), step, [])


def whole(unknown: str, equation: Equation, at: Callable[[int], Point], step: int = 1) -> Solution:
    """Solve for a context or a batch by search, where a side is no polynomial, or among multiples of `step`. Raises
    NoSolutionError."""
    return _among_multiples(unknown, equation, at, lambda _: True, step, step)


def turn(name: Callable[[int], str], last: int) -> tuple[int, str] | None:
    """First of the numbers up to `last` that are named as it is, and how the one before is; None if 1 is named so too.

    There may be more turns below.
    """
    low, high, here = 1, last, name(last)
    if name(low) == here:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if name(middle) == here else (middle, high)
    return high, name(low)


def _among_multiples(
    unknown: str,
    equation: Equation,
    at: Callable[[int], Point],
    can_be: Callable[[int], bool],
    given: int,
    step: int,
) -> Solution:
    """The last multiple of `step` before the sides change places."""
    probes = _probes(can_be, given // step, step)
    differences = [equation.difference(at(value)) for value in probes]
    if len(set(differences)) == 1:
        raise NoSolutionError(f"{equation}: that does not depend on {unknown}")
    signs = list(map(sign, differences))
    turns = [i for i, (here, next_) in enumerate(pairwise(signs)) if here <= 0 < next_ or here >= 0 > next_]
    tried = f"{unknown} was tried from {probes[0]:,} to {probes[-1]:,}"
    compressed = at(probes[0]).ledger.period if step == 1 and unknown == "ctx" else 1
    if len(turns) > 1 and (compressed == 1 or signs[0] == signs[-1]):
        raise NoSolutionError(f"{equation}: the sides change places more than once", tried)
    if not turns:
        if not signs[-1]:
            raise NoSolutionError(f"{equation}: the sides meet, and stay equal however large {unknown} is", tried)
        raise NoSolutionError(f"{equation}: {stays(equation, signs[-1])}", tried)
    low, high = probes[turns[0]] // step, probes[turns[0] + 1] // step
    after = signs[turns[0] + 1]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sign(equation.difference(at(middle * step))) == after else (middle, high)
    lengths, rates = _lengths(at(low * step))
    edges = (
        number * length
        for length in (lengths | rates if step == 1 else ())
        for number in range(low // length - CHUNKS_AROUND, high // length + CHUNKS_AROUND)
    )
    turning = [value for edge in edges for value in (edge - 1, edge, edge + 1)]
    tried_near = [*range(low - AROUND, high + AROUND + 1), *turning]
    near = [value for value in tried_near if value > 0 and can_be(value * step)]
    if all((sign(equation.difference(at(value * step))) == after) == (value >= high) for value in near):
        return Solution(low * step, high * step, rises=after > 0)
    ends = _of_each_rest(lambda value: sign(equation.difference(at(value))) == after, low, compressed)
    if ends is None:
        why = "rounding makes the sides cross more than once"
        if rates and unknown == "ctx":
            why = "the sides cross more than once, because counts jump each time a compressed key is complete"
        raise NoSolutionError(f"{equation}: near {unknown} = {low * step:,} {why}")
    first, last = min(ends), max(ends) - compressed
    return Solution(first - 1, first, rises=after > 0, again=last if last > first else None)


def _of_each_rest(past: Callable[[int], bool], near: int, period: int) -> list[int] | None:
    """Of the numbers with each rest by `period` the first that is `past`: among these as many tokens wait to be
    compressed, so counts grow evenly. None where there are too many rests, or one changes places more than once."""
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
    """The first number that is `past`, of those that are multiples of `period` from `start`; the numbers around it are
    looked at first. None where there is none."""
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
    """Multiples of `step` from the smallest to the largest that can be: all of the first, where a share may dip and
    rise again, and then each at most twice the one before."""
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
    """The number nearest to `outside` that can still be, `outside` itself left out."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if can_be(middle) else (inside, middle)
    return inside


def _lengths(point: Point) -> tuple[set[int], set[int]]:
    """Tokens in a chunk of a recurrence that is padded to whole chunks, and of which a compressed key is made."""
    axes = [group.axes for group in point.ledger.groups]
    chunks, rates = (
        {own[name] for own in axes for name in names if isinstance(own.get(name), int) and own[name] > 1}
        for names in ((CHUNK,), tuple(RATES.values()))
    )
    return {max(chunks)} if chunks else set(), rates
