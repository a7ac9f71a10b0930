"""Formulas for one rank: sums of terms divided by sizes of a parallel layout."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tfacct.algebra.factored import Factored
from tfacct.base.record import record

Ranks = tuple[str, ...]
"""Divisors of a term: numbers of ranks or symbols for them."""


@record
class RankFormula:
    """A sum in symbols: parts, each with its divisors."""

    parts: tuple[tuple[Factored, Ranks], ...]

    @property
    def text(self) -> str:
        """Readable text: `(2·B·T·D·V) / t + B·T·D`."""
        return self._joined("text", "({}) / {}", "·", "({})")

    @property
    def code(self) -> str:
        """Text for Python and sympy."""
        return self._joined("code", "({})/{}", "*", "({})")

    @property
    def latex(self) -> str:
        """Text for LaTeX's math mode."""
        return self._joined("latex", "\\frac{{{}}}{{{}}}", " ", "{}")

    def _joined(self, style: str, fraction: str, times: str, several: str) -> str:
        terms = []
        for part, by in sorted(self.parts, key=lambda one: not one[1]):  # undivided parts last
            text, number = str(getattr(part, style)), prod(int(one) for one in by if one.isdigit())
            under = [*([str(number)] if number > 1 else []), *(one for one in by if not one.isdigit())]
            below = times.join(under)
            terms.append(fraction.format(text, below if len(under) == 1 else several.format(below)) if by else text)
        return " + ".join(terms)


@record
class SymbolicLine:
    """A line of the ledger in symbols, with its values at a workload. `weights`: parameters of the module of a
    matmul."""

    path: str
    spec: str
    count: Factored | RankFormula
    values: Mapping[str, int]
    weights: Factored | RankFormula | None
