"""Solutions of equations: the largest whole context, batch or number of key/value heads before the sides cross.

The ledger is evaluated with a symbol for the unknown. Then the answer is checked with whole numbers on both sides of
the boundary, so that it is exact in spite of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tfacct.accounts.metrics import Point, moved
from tfacct.algebra.equations import Equation
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import NotFoundError, UsageError, nearest
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Size
from tfacct.ledger.workload import LARGEST

UNKNOWNS = {
    "ctx": "context at the end of the step",
    "batch": "sequences",
    "num_key_value_heads": "key/value heads",
}
"""Sizes that an equation may be solved for."""

ROUNDED = 1000
"""Whole numbers that are tried around a root, because bytes are rounded."""


class NoSolutionError(UsageError):
    """An equation without a solution, or with several."""


@record
class Solution:
    """Solution of an equation.

    `answer` is the last whole number before the sides cross, or at which they are equal; `beyond` is the next one, None
    if there is none. `root`: exact root, if known. `rises`: the left side becomes larger. `leaps`: the sides cross
    where a step changes to another alternative, and are equal nowhere. `again`: last number after `beyond` with the
    same order of sides as up to `answer`, if any.
    """

    answer: int
    beyond: int | None
    rises: bool
    root: Any = None
    leaps: bool = False
    again: int | None = None


def placed(unknown: str, shape: Transformer, point: Point, *, chunk: bool) -> Callable[[Size], Point]:
    """The point as a function of the unknown. `chunk`: the number of new tokens does not grow with the context."""
    if unknown == "ctx":
        if chunk:
            return lambda value: moved(point, context=value)
        return lambda value: moved(point, context=value, tokens=value)
    if unknown == "batch":
        return lambda value: moved(point, batch=value)
    if unknown == "num_key_value_heads":
        return lambda value: replace(point, ledger=shape.with_kv_heads(value).ledger())
    raise NotFoundError(
        f"no unknown {unknown!r}", nearest(unknown, UNKNOWNS) or f"{option('unknown')} is one of {', '.join(UNKNOWNS)}"
    )


def solved(unknown: str, equation: Equation, at: Callable[[Size], Point], smallest: int) -> Solution:
    """Solve for a context or batch of at least `smallest`. Raises NoSolutionError with the reason."""
    import sympy

    x = sympy.Symbol("x", positive=True)
    pieces = _alternatives(equation, at, x)
    if all(polynomial.is_zero for polynomial, _, _ in pieces):
        raise NoSolutionError(f"{equation} for every {unknown}")
    level = next((low for polynomial, low, high in pieces if polynomial.is_zero and high > smallest), None)
    if level is not None:
        raise NoSolutionError(
            f"{equation} is reached at {unknown} = {decimal(max(level, smallest))} and stays equal from there"
        )
    roots = list(dict.fromkeys(root for piece in pieces for root in _roots(*piece)))
    leaps = [low for low in _leaps(pieces) if low > smallest and low not in roots]
    there = [root for root in (*roots, *leaps) if root >= smallest]
    if len(there) != 1:
        raise _unsolved(unknown, equation, at, smallest, roots, there)
    answer = int(sympy.floor(there[0]))
    if answer > LARGEST:
        raise NoSolutionError(f"{equation}: only past {unknown} = {LARGEST:,}, which is out of range")
    rises = sign(equation.difference(at(answer + ROUNDED))) > 0

    def past(value: int) -> bool:
        return sign(equation.difference(at(value))) == (1 if rises else -1)

    for _ in range(ROUNDED):  # whole bytes are rounded up, symbols are not
        if answer > smallest and past(answer):
            answer -= 1
        elif not past(answer + 1):
            answer += 1
        else:
            break
    if past(answer) or not past(answer + 1):
        raise NoSolutionError(
            f"{equation}: rounding makes the sides cross more than once near {unknown} = {decimal(there[0])}"
        )
    return Solution(answer, answer + 1, rises, None if leaps else there[0], bool(leaps))


def _alternatives(equation: Equation, at: Callable[[Size], Point], x: Any) -> list[tuple[Any, Any, Any]]:
    """Difference of the sides as polynomials, each with its interval of x.

    For a model with two alternatives, each applies where it takes fewer FLOPs.
    """
    import sympy

    there = at(x)
    ways = [replace(there, ledger=way) for way in there.ledger.ways]
    if len(ways) == 1:
        return _pieces(sympy.sympify(equation.difference(there)), x)
    first, second = (way.ledger.total_flops(way.at, masked=way.masked) for way in ways)
    found = []
    for polynomial, low, high in _pieces(sympy.sympify(first - second), x):
        meet = [] if polynomial.is_zero else sympy.real_roots(polynomial)
        edges = [low, *sorted({root for root in meet if low < root < high}), high]
        for start, end in pairwise(edges):
            inside = start + 1 if end is sympy.oo else (start + end) / 2
            fewer = ways[0] if polynomial.eval(inside) <= 0 else ways[1]
            found += _pieces(sympy.sympify(equation.difference(fewer)), x, start, end)
    return found


def _leaps(pieces: list[tuple[Any, Any, Any]]) -> list[Any]:
    """Boundaries between pieces at which the sides cross without being equal."""
    both = ((before.eval(low), after.eval(low), low) for (before, _, _), (after, low, _) in pairwise(pieces))
    return [low for before, after, low in both if sign(before) * sign(after) < 0]


def _pieces(expression: Any, x: Any, low: Any = 0, high: Any = None) -> list[tuple[Any, Any, Any]]:
    """Expression as polynomials, each with its interval of x; windows make it piecewise.

    Each `min` is resolved, innermost first, on both sides of the point where its arguments are equal.
    """
    import sympy

    low, high = sympy.sympify(low), sympy.oo if high is None else high
    innermost = (m for m in expression.atoms(sympy.Min) if not any(size.has(sympy.Min) for size in m.args))
    minimum = next(iter(sorted(innermost, key=str)), None)
    if minimum is None:
        return [(sympy.Poly(sympy.numer(sympy.together(expression)), x), low, high)]
    first, second, *others = minimum.args
    meet = sympy.solve(first - second, x) if (first - second).has(x) else []
    edges = [low, *sorted(at for at in meet if low < at < high), high]
    found = []
    for start, end in pairwise(edges):
        inside = start + 1 if end is sympy.oo else (start + end) / 2
        smaller = min((first, second), key=_at(x, inside))
        straight = sympy.Min(smaller, *others) if others else smaller
        found += _pieces(expression.xreplace({minimum: straight}), x, start, end)
    return found


def _at(x: Any, value: Any) -> Callable[[Any], Any]:
    return lambda expression: expression.subs(x, value)


def _roots(polynomial: Any, low: Any, high: Any) -> list[Any]:
    """Roots with a sign change between `low` and `high`; also negative ones if `low` is 0, for error messages."""
    import sympy

    if polynomial.is_zero:
        return []
    roots = [root for root in dict.fromkeys(sympy.real_roots(polynomial)) if root != 0 and _turns(polynomial, root)]
    return [root for root in roots if (low == 0 or root > low) and root <= high]


def among(unknown: str, equation: Equation, at: Callable[[Size], Point], values: list[int]) -> Solution:
    """Solve for one of `values`, in ascending order: the last before the sides cross."""
    signs = [sign(equation.difference(at(value))) for value in values]
    if not any(signs):
        raise NoSolutionError(f"{equation} for every {unknown}")
    turns = crossings(signs)
    if not turns and signs[-1] == 0:
        return Solution(values[-1], None, rises=signs[0] < 0)
    if len(turns) != 1:
        values_text = ", ".join(str(values[i]) for i in turns)
        what = (
            f"it has several solutions: {unknown} = {values_text}" if turns else stays(equation, signs[-1] or signs[0])
        )
        raise NoSolutionError(f"{equation}: {what}", f"{unknown} was {', '.join(map(str, values))}")
    (turn,) = turns
    return Solution(values[turn], values[turn + 1], rises=signs[turn + 1] > 0)


def _turns(polynomial: Any, root: Any) -> bool:
    """True if the sign changes at a root, which is when its multiplicity is odd."""
    multiplicity = 0
    while polynomial.eval(root).equals(0):
        polynomial, multiplicity = polynomial.diff(), multiplicity + 1
    return multiplicity % 2 == 1


def sign(value: Any) -> int:
    """1, 0 or -1."""
    return int(bool(value > 0)) - int(bool(value < 0))


def crossings(signs: list[int]) -> list[int]:
    """Places after which the sides cross: the next sign is neither 0 nor the same."""
    return [i for i, (here, after) in enumerate(pairwise(signs)) if after not in (here, 0)]


def stays(equation: Equation, sign: int) -> str:
    """Reason for no solution: the left side stays above, below or at the right side."""
    side = {1: "above", -1: "below", 0: "at"}[sign]
    return f"no solution: {equation.left.text} stays {side} {equation.right.text}"


def _unsolved(
    unknown: str, equation: Equation, at: Callable[[Size], Point], smallest: int, roots: list[Any], there: list[Any]
) -> NoSolutionError:
    """Error for no solution or several."""
    if there:
        return NoSolutionError(f"{equation}: it has several solutions: {unknown} = {_values_text(there)}")
    signs = {sign(equation.difference(at(smallest + step))) for step in (0, 1, 2, 3, ROUNDED, ROUNDED + 1)}
    if len(signs) > 1:
        return NoSolutionError(f"{equation}: rounding makes the sides cross more than once")
    why = stays(equation, sign(equation.difference(at(smallest))))
    positive = [root for root in roots if root > 0]
    if positive:
        return NoSolutionError(
            f"{equation}: {why} from {unknown} = {smallest:,} on", _too_small(unknown, smallest, positive)
        )
    if roots:
        return NoSolutionError(
            f"no {unknown} satisfies {equation}: the only solution is negative, {unknown} = {_values_text(roots)}"
        )
    return NoSolutionError(f"{equation}: {why} for every {unknown}")


def _too_small(unknown: str, smallest: int, roots: list[Any]) -> str:
    """Hint for solutions below the smallest valid value."""
    least = "the smallest possible value" if smallest == 1 else "the new tokens"
    return f"both sides are equal at {unknown} = {_values_text(roots)} only, below {smallest:,}, {least}"


def _values_text(roots: list[Any]) -> str:
    return " and ".join(decimal(root) for root in roots)


def decimal(root: Any) -> str:
    """Text of a number: whole, or with two decimals."""
    return f"{int(root):,}" if root == int(root) else f"{float(root):,.2f}"
