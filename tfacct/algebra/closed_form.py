"""The solution of an equation in symbols, `D + D·K/N`, if it is short enough to print."""

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

LARGEST_IN_LETTERS = 10**6
"""A larger number among letters, a card's bytes, hides what it is."""

LONGEST_FORM = 160
"""Characters of a closed form; a longer one is no explanation."""


def closed_form(
    unknown: str, equation: Equation, shape: Transformer, point: Point, *, chunk: bool, fixed: frozenset[str]
) -> str | None:
    """The solution in letters, where the equation is linear in the unknown and the answer a short sum; else None.

    The letters in `fixed` keep their numbers.
    """
    import sympy

    if point.cache.rounds or point.ledger.leaps:
        return None  # what is rounded up is no sum of sizes
    x = sympy.Symbol("x", positive=True)
    in_numbers = placed(unknown, shape, point, chunk=chunk)
    if sympy.sympify(equation.difference(in_numbers(x))).has(sympy.Min):
        return None  # a window bends it
    stepped = any(side.metric is not None and side.metric.of_step for side in (equation.left, equation.right))
    if stepped or point.weights.rounds or (equation.right.metric is None and equation.right.times > LARGEST_IN_LETTERS):
        return _in_numbers(equation, in_numbers)
    try:
        axis_names = in_symbols(shape, fixed=fixed)
    except UsageError:  # one letter is two sizes: numbers are read, not letters
        return _in_numbers(equation, in_numbers)
    symbols = axis_names.symbols
    keys = symbols.get("S", symbols["T"])  # of a model that keeps nothing the tokens are all the keys
    known = {"batch": symbols["B"], "context": keys, "tokens": symbols["T"] if chunk else keys}
    at = placed(unknown, shape, replace(moved(point, **known), ledger=axis_names.ledger), chunk=chunk)
    polynomial = sympy.Poly(sympy.numer(sympy.together(equation.difference(at(x)))), x)
    *higher, slope, constant = (sympy.expand(c) for c in _without_zero_roots(polynomial).all_coeffs())
    if higher:
        return None
    root = sympy.expand(-constant / slope)
    for axis in axis_names.products:  # N for K · G: the last factor is the product over the others
        *others, last = axis_names.factors(axis)
        root = sympy.expand(root.subs(symbols[last], symbols[axis] / prod(symbols[other] for other in others)))
    terms = [_written(term, symbols) for term in root.as_ordered_terms()]
    if None in terms or len(text := " + ".join(filter(None, terms))) > LONGEST_FORM:
        return None
    return text.replace("+ -", "− ")


def _in_numbers(equation: Equation, at: Callable[[Size], Point]) -> str | None:
    """Rest of a budget, divided by what each step takes; None if the steps differ."""
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


def _written(term: Any, symbols: Mapping[str, Any]) -> str | None:
    """Text of a product over a product, `D·K/N`; None if the expression is more than that."""
    over, under = term.as_numer_denom()
    sides = []
    for side in (over, under):
        powers = side.as_powers_dict()
        if not all(base.is_Symbol or base.is_Integer for base in powers):
            return None
        coefficient, _ = side.as_coeff_Mul()
        axis_names = [axis for axis, symbol in symbols.items() for _ in range(int(powers.get(symbol, 0)))]
        sign = "-" if coefficient < 0 else ""
        number = [] if abs(coefficient) == 1 and axis_names else [f"{abs(int(coefficient)):,}"]
        sides.append(sign + "·".join([*number, *axis_names]))
    if sides[1] == "1":
        return sides[0]
    return f"{sides[0]}/{sides[1]}" if "·" not in sides[1] else f"{sides[0]}/({sides[1]})"
