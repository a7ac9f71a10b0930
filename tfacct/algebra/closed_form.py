"""Solutions of equations in symbols, `D + D·K/N`, if short enough to print."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from tfacct.accounts.metrics import Point, moved
from tfacct.algebra.equations import Equation
from tfacct.algebra.solving import placed
from tfacct.algebra.symbols import in_symbols
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.ledger.einsum import Size

LARGEST_IN_SYMBOLS = 10**6
"""Largest number in a solution in symbols; larger ones, such as a card's memory, are unreadable there."""

LONGEST_FORM = 160
"""Most characters of a closed form."""


def closed_form(
    unknown: str, equation: Equation, shape: Transformer, point: Point, *, chunk: bool, fixed: frozenset[str]
) -> str | None:
    """Solution in symbols if the equation is linear in the unknown and the solution is a short sum; else None.

    The axes in `fixed` stay numbers.
    """
    import sympy

    if point.cache.rounds or point.ledger.leaps:
        return None  # rounded counts are not polynomials
    x = sympy.Symbol("x", positive=True)
    in_numbers = placed(unknown, shape, point, chunk=chunk)
    if sympy.sympify(equation.difference(in_numbers(x))).has(sympy.Min):
        return None  # piecewise, because of a window
    stepped = any(side.metric is not None and side.metric.of_step for side in (equation.left, equation.right))
    if stepped or point.weights.rounds or (equation.right.metric is None and equation.right.times > LARGEST_IN_SYMBOLS):
        return _in_numbers(equation, in_numbers)
    try:
        symbolic = in_symbols(shape, fixed=fixed)
    except UsageError:  # an axis has two sizes: use numbers
        return _in_numbers(equation, in_numbers)
    symbols = symbolic.symbols
    keys = symbols.get("S", symbols["T"])  # without a cache, keys are the tokens
    known = {"batch": symbols["B"], "context": keys, "tokens": symbols["T"] if chunk else keys}
    at = placed(unknown, shape, replace(moved(point, **known), ledger=symbolic.ledger), chunk=chunk)
    polynomial = sympy.Poly(sympy.numer(sympy.together(equation.difference(at(x)))), x)
    *higher, slope, constant = (sympy.expand(c) for c in _without_zero_roots(polynomial).all_coeffs())
    if higher:
        return None
    root = sympy.expand(-constant / slope)
    for axis in symbolic.products:  # N for K · G: replace the last factor by N / K
        *others, last = symbolic.factors(axis)
        root = sympy.expand(root.subs(symbols[last], symbols[axis] / prod(symbols[other] for other in others)))
    terms = [_quotient_text(term, symbols) for term in root.as_ordered_terms()]
    if None in terms or len(text := " + ".join(filter(None, terms))) > LONGEST_FORM:
        return None
    return text.replace("+ -", "− ")


def _in_numbers(equation: Equation, at: Callable[[Size], Point]) -> str | None:
    """Remaining budget divided by the cost of one unit, `(A − B)/C`; None if the cost is not linear."""
    if equation.right.metric is not None:
        return None
    budget = equation.right.times
    values = [Fraction(equation.left.at(at(value))) for value in (1, 2, 3)]
    first, second, third = values
    if second - first != third - second or second == first or any(v.denominator > 1 for v in (*values, budget)):
        return None
    fixed = int(2 * first - second)
    over = f"({int(budget):,} − {fixed:,})" if fixed else f"{int(budget):,}"
    return f"{over}/{int(second - first):,}"


def _without_zero_roots(polynomial: Any) -> Any:
    while polynomial.degree() > 1 and polynomial.eval(0) == 0:
        polynomial = polynomial.quo(polynomial.gen.as_poly(polynomial.gen))
    return polynomial


def _quotient_text(term: Any, symbols: Mapping[str, Any]) -> str | None:
    """Text of a quotient of products, `D·K/N`; None for other expressions."""
    over, under = term.as_numer_denom()
    sides = []
    for side in (over, under):
        powers = side.as_powers_dict()
        if not all(base.is_Symbol or base.is_Integer for base in powers):
            return None
        coefficient, _ = side.as_coeff_Mul()
        factors = [axis for axis, symbol in symbols.items() for _ in range(int(powers.get(symbol, 0)))]
        sign = "-" if coefficient < 0 else ""
        number = [] if abs(coefficient) == 1 and factors else [f"{abs(int(coefficient)):,}"]
        sides.append(sign + "·".join([*number, *factors]))
    if sides[1] == "1":
        return sides[0]
    return f"{sides[0]}/{sides[1]}" if "·" not in sides[1] else f"{sides[0]}/({sides[1]})"
