"""Formulas of one rank: the same lines, where ranks of `tp` divide a letter of theirs by their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfacct.accounts.sharding.mesh import LIVES, Mesh, padded, replicated
from tfacct.algebra.factored import Factored
from tfacct.algebra.symbols import SymbolicModel
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Size
from tfacct.loading.model import LoadedModel
from tfacct.reports.mesh import check_divided

if TYPE_CHECKING:
    from tfacct.reports.formula import Line


@record
class Divided:
    """What is written of a sum whose one part ranks divide by `by`: a letter or a number."""

    part: Factored | None
    whole: Factored | None
    by: str

    @property
    def text(self) -> str:
        """Text as people write it: `(2·B·T·D·V) / t + B·T·D`."""
        return self._joined([f"({self.part.text}) / {self.by}"] if self.part else [], "text")

    @property
    def code(self) -> str:
        """Text as Python and sympy read it."""
        return self._joined([f"({self.part.code})/{self.by}"] if self.part else [], "code")

    @property
    def latex(self) -> str:
        """Text for LaTeX's math mode."""
        return self._joined([f"\\frac{{{self.part.latex}}}{{{self.by}}}"] if self.part else [], "latex")

    def _joined(self, first: list[str], style: str) -> str:
        return " + ".join([*first, *([str(getattr(self.whole, style))] if self.whole else [])])


def on_rank(subject: LoadedModel, tp: str, lines: Sequence[Line], symbolic: SymbolicModel) -> list[Line]:
    """The lines of one rank of `tp`, a letter or a number. Raises TfacctError for a model that ranks do not divide."""
    number = int(tp) if tp.isascii() and tp.isdigit() else None
    if number is None and not (tp.isascii() and tp.isalpha() and tp.islower() and len(tp) == 1):
        raise UsageError(f"{option('tp')} is a number of ranks or a small letter for it, not {tp!r}", "for example t")
    if number is not None and number < 1:
        raise UsageError(f"{option('tp')} must be at least 1, not {number}")
    mesh = Mesh(number or 1)
    check_divided(subject, mesh)
    uneven = [("K", heads) for heads in replicated(subject.ledger, mesh)] + padded(subject.ledger, mesh)
    if number and uneven:
        named = ", ".join(f"{letter} = {whole:,}" for letter, whole in uneven)
        raise UsageError(f"{subject.name}: {option('tp', number)} does not divide {named} evenly")
    weights = _weights(symbolic, tp)
    return [_divided(line, tp, number, weights) for line in lines]


def _weights(symbolic: SymbolicModel, tp: str) -> dict[str, Divided]:
    """The parameters of each module. The bias of what is summed over a divided letter is whole."""
    axes = {one.path: one.axes for group in symbolic.ledger.groups for line in group.lines for one in line.parameters()}
    found = {}
    for module, tensors in groupby(symbolic.ledger.parameters().items(), key=lambda one: paths.module_of(one[0])):
        sizes: tuple[list[Any], list[Any]] = ([], [])
        for path, count in tensors:
            sizes[set(axes[path]).isdisjoint(LIVES)].append(count)
        part, whole = (symbolic.formula(some).written if some else None for some in sizes)
        found[module] = Divided(part, whole, tp)
    return found


def _divided(line: Line, tp: str, number: int | None, stored: Mapping[str, Divided]) -> Line:
    if not divides(line):
        return line if number else replace(line, values={})
    weights = None if line.weights is None else stored[line.path]
    values = {key: value // number for key, value in line.values.items()} if number else {}
    return replace(line, count=Divided(_factored(line.count), None, tp), weights=weights, values=values)


def divides(line: Line) -> bool:
    """True if ranks divide a letter of a line."""
    return not set(AXIS.findall(line.spec)).isdisjoint(LIVES)


def _factored(written: Factored | Divided) -> Factored:
    assert isinstance(written, Factored)
    return written


def total_of(symbolic: SymbolicModel, tp: str, lines: Sequence[Line], counts: Mapping[str, Size]) -> Divided:
    """The total of one rank: what is divided, and what is whole on each."""
    apart = {line.path for line in lines if divides(line)}
    part, whole = ([count for path, count in counts.items() if (path in apart) == so] for so in (True, False))
    written = [symbolic.formula(some).written if some else None for some in (part, whole)]
    return Divided(written[0], written[1], tp)


def divided_note(tp: str, lines: Iterable[Line]) -> str:
    """Which letters are divided."""
    there = {letter for line in lines for letter in AXIS.findall(line.spec)}
    named = " ".join(letter for letter in LIVES if letter in there)
    of = f"{tp} ranks divide" if tp.isdigit() else f"{tp} is the number of ranks, which divide"
    return f"{of} {named}: of one rank, a line that has one of these letters is divided once."


def letter_of(tp: str) -> dict[str, dict[str, Any]]:
    """What the letter stands for."""
    return {} if tp.isdigit() else {tp: {"meaning": "ranks"}}
