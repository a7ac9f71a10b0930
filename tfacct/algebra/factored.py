"""Readable polynomials with common factors taken out: text, code and LaTeX from one tree.

Factoring follows the components of a ledger: common factors are taken out of each component, and terms with the axis of
a stack of layers are in one bracket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TypeAlias

from tfacct.base.record import record

Powers: TypeAlias = tuple[int, ...]
"""Power of each axis in a monomial, in the order of axes."""
Polynomial: TypeAlias = Mapping[Powers, int]
"""Monomial → coefficient."""

BLOCKS, KEYS = "L", "S"
"""First letters of axes: of stacks of layers, which get a bracket each, and of keys, whose terms come last."""


@record
class Term:
    """A term: coefficient · axes · (a sum). Without terms inside, there is no bracket.

    `over`: another sum before that one, of the layers of stacks with equal sums.
    """

    coefficient: int
    powers: Powers
    inside: tuple[Term, ...] = ()
    over: tuple[Term, ...] = ()

    def spread(self) -> Term:
        """Equal term without `over`: `inside` multiplied by each of its terms."""
        if not self.over:
            return self
        return Term(self.coefficient, self.powers, tuple(_times(one, self.inside) for one in self.over))


@record
class Style:
    """Notation of terms."""

    times: str
    power: str
    brackets: tuple[str, str] = ("(", ")")
    axis: Callable[[str], str] = str


def latex_axis(axis: str) -> str:
    """Axis in LaTeX; small letters become a subscript."""
    return axis if len(axis) == 1 else f"{axis[0]}_{{\\mathrm{{{axis[1:]}}}}}"


TEXT = Style("·", "^{}")
CODE = Style("*", "**{}")
LATEX = Style(r"\,", "^{{{}}}", (r"\left(", r"\right)"), latex_axis)


@record
class Factored:
    """A factored polynomial in `axis_names`."""

    axis_names: tuple[str, ...]
    term: Term

    @property
    def text(self) -> str:
        """Readable text: `2·B·T·D·V`."""
        return _text(self.term, self.axis_names, TEXT)

    @property
    def code(self) -> str:
        """Text for Python and sympy: `2*B*T*D*V`."""
        return _text(self.term, self.axis_names, CODE)

    @property
    def latex(self) -> str:
        """Text for LaTeX's math mode."""
        return _text(self.term, self.axis_names, LATEX)


def factored(axis_names: Sequence[str], parts: Iterable[Polynomial], after: Iterable[Polynomial] = ()) -> Factored:
    """Factored sum of all parts: common factors, then L · (…) for each stack, then terms without L.

    Each part is one term of the sum, with its common factors taken out. Parts without S come first, short before long
    ones; those in `after` come after `parts`.
    """
    ranked = [*((0, part) for part in parts), *((1, part) for part in after)]
    shared = _shared([term for _, part in ranked for term in part.items()], len(axis_names))
    keys = tuple(int(axis[0] == KEYS) for axis in axis_names)
    stacks = [tuple(int(axis == one) for axis in axis_names) for one in axis_names if one[0] == BLOCKS]
    inner, outer = [_Sum(keys) for _ in stacks], _Sum(keys)
    for rank, part in ranked:
        rest = _divided(part, shared)
        for blocks, sum_ in zip(stacks, inner, strict=True):
            stacked = {powers: count for powers, count in rest.items() if _overlap(powers, blocks)}
            sum_.add(_divided(stacked, Term(1, blocks)), rank)
            rest = {powers: count for powers, count in rest.items() if powers not in stacked}
        outer.add(rest, rank)
    return Factored(tuple(axis_names), _times(shared, [*_of_stacks(stacks, inner), *outer.terms()]))


def _of_stacks(stacks: Sequence[Powers], sums: Sequence[_Sum]) -> list[Term]:
    """Terms axis · (sum) of each stack; stacks with equal sums share a bracket."""
    alike: dict[tuple[Term, ...], list[Term]] = {}
    for blocks, sum_ in zip(stacks, sums, strict=True):
        if sum_.found:
            alike.setdefault(tuple(sum_.terms()), []).append(Term(1, blocks))
    found: list[Term] = []
    for terms, fronts in alike.items():
        together = _times(Term(1, (0,) * len(fronts[0].powers)), terms)
        if len(fronts) > 1 and together.inside:
            found.append(replace(together, over=tuple(fronts)))
        else:
            found += [_times(front, terms) for front in fronts]
    return found


def in_front(axis_names: Sequence[str], polynomial: Polynomial, fronts: Sequence[Sequence[str]]) -> Factored:
    """Polynomial with the axes in `fronts` taken out of brackets, one set after the other. Coefficients are not
    factored.

    >>> two = {(1, 1, 0): 16, (1, 0, 1): 8, (0, 0, 0): 24}
    >>> in_front("TDF", two, ["T"]).text
    'T·(16·D + 8·F) + 24'
    """
    return Factored(tuple(axis_names), Term(1, (0,) * len(axis_names), _split(axis_names, polynomial, fronts)))


def _split(axis_names: Sequence[str], polynomial: Polynomial, fronts: Sequence[Sequence[str]]) -> tuple[Term, ...]:
    if not fronts:
        return tuple(_monomials(polynomial))
    groups: dict[Powers, dict[Powers, int]] = {}
    for powers, count in polynomial.items():
        front = tuple(power if axis in fronts[0] else 0 for power, axis in zip(powers, axis_names, strict=True))
        groups.setdefault(front, {})[powers] = count
    found: list[Term] = []
    for front, part in sorted(groups.items(), key=lambda group: (not any(group[0]), -sum(group[0]), group[0])):
        inside = _split(axis_names, _divided(part, Term(1, front)), fronts[1:])
        found += [_times(Term(1, front), inside)] if any(front) else inside
    return tuple(found)


@dataclass(slots=True)
class _Sum:
    """An accumulating sum: terms that differ only in their coefficient are merged."""

    keys: Powers
    found: dict[tuple[Powers, tuple[Term, ...]], tuple[int, int]] = field(default_factory=dict)

    def add(self, part: Polynomial, rank: int) -> None:
        """Add a part: a term with a bracket, unless its terms have no common factor."""
        if not part:
            return
        shared = _shared(list(part.items()), len(next(iter(part))))
        inside = _monomials(_divided(part, shared))
        if shared.coefficient == 1 and not any(shared.powers):
            for term in inside:
                self._put(term, rank)
        else:
            self._put(_times(shared, inside), rank)

    def _put(self, term: Term, rank: int) -> None:
        kind = term.powers, term.inside
        count, known = self.found.get(kind, (0, rank))
        self.found[kind] = count + term.coefficient, min(rank, known)

    def terms(self) -> list[Term]:
        """Terms in their final order."""
        found = [(rank, Term(count, *kind)) for kind, (count, rank) in self.found.items() if count]
        return [term for _, term in sorted(found, key=lambda ranked: self._place(*ranked))]

    def _place(self, rank: int, term: Term) -> tuple[object, ...]:
        long = len(term.inside) or 1
        constant = not any(term.powers) and long == 1
        grows = any(_overlap(t.powers, self.keys) for t in (term, *term.inside))
        return grows, constant, rank, long, sum(term.powers), _lexical(term)


def _lexical(term: Term) -> Powers:
    """Sort key of terms by axes: N before K, numbers last."""
    return tuple(-power for power in term.powers)


def _monomials(part: Polynomial) -> list[Term]:
    return sorted((Term(count, powers) for powers, count in part.items()), key=_lexical)


def _shared(terms: Sequence[tuple[Powers, int]], axes: int) -> Term:
    """Greatest common factor of the terms, in this number of axes."""
    if not terms:
        return Term(0, (0,) * axes)
    return Term(gcd(*(count for _, count in terms)), tuple(map(min, *(powers for powers, _ in terms), terms[0][0])))


def _divided(part: Polynomial, by: Term) -> dict[Powers, int]:
    return {
        tuple(power - less for power, less in zip(powers, by.powers, strict=True)): count // by.coefficient
        for powers, count in part.items()
    }


def _overlap(powers: Powers, others: Powers) -> bool:
    """True if both share an axis."""
    return any(map(min, powers, others))


def _times(front: Term, terms: Sequence[Term]) -> Term:
    """`front` times a sum, without a bracket for a single term."""
    if len(terms) != 1:
        return Term(front.coefficient, front.powers, tuple(terms))
    (only,) = terms
    powers = tuple(map(sum, zip(front.powers, only.powers, strict=True)))
    return Term(front.coefficient * only.coefficient, powers, only.inside, only.over)


def _text(term: Term, axis_names: Sequence[str], style: Style) -> str:
    factors = [
        style.axis(axis) + (style.power.format(power) if power > 1 else "")
        for axis, power in zip(axis_names, term.powers, strict=True)
        if power
    ]
    for sum_ in filter(None, (term.over, term.inside)):
        total = " + ".join(_text(one, axis_names, style) for one in sum_)
        total = total.replace("+ -", "− " if style is TEXT else "- ")
        opening, closing = style.brackets if factors or term.over or term.coefficient != 1 else ("", "")
        factors.append(f"{opening}{total}{closing}")
    if term.coefficient != 1 or not factors:
        factors.insert(0, str(term.coefficient))
    return style.times.join(factors)
