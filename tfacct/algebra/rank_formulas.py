"""Formulas of one rank: sums whose terms are divided by the sizes of a parallel layout."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tfacct.algebra.factored import Factored
from tfacct.base.record import record

Ranks = tuple[str, ...]
"""Numbers of ranks, or symbols for them, that divide a count: none, one or several."""


@record
class RankFormula:
    """A sum in symbols, each part with the numbers of ranks that divide it."""

    parts: tuple[tuple[Factored, Ranks], ...]

    @property
    def text(self) -> str:
        """Text as people write it: `(2·B·T·D·V) / t + B·T·D`."""
        return self._joined("text", "({}) / {}", "·", "({})")

    @property
    def code(self) -> str:
        """Text as Python and sympy read it."""
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
    """One line of the ledger in symbols, with its values at a workload. `weights`: the parameters of a product's own
    module."""

    path: str
    spec: str
    count: Factored | RankFormula
    values: Mapping[str, int]
    weights: Factored | RankFormula | None
