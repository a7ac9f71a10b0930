"""Formulas of one rank: each line divided by the numbers of ranks that divide one of its axes.

Tensor parallelism divides heads, widths and the vocabulary, expert parallelism the experts, pipeline stages the layers,
and context parallelism the tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import Any, Literal, NamedTuple

from tfacct.algebra.divided import Divided, Ranks, SymbolicLine
from tfacct.algebra.factored import Factored
from tfacct.algebra.symbols import SymbolicModel
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.parallel.mesh import tp_axis

Layout = Mapping[str, str]
"""Numbers of ranks, or letters for them, by axis: `{"tp": "8", "pp": "p"}`."""


class RankTotal(NamedTuple):
    """The total of one rank, the letters of the lines that ranks can divide, and which pipeline stage has the most."""

    total: Divided
    letters: set[str]
    stage: Literal["first", "last", "each"]


def lines_of_rank(
    lines: Sequence[SymbolicLine], symbolic: SymbolicModel, layout: Layout, of: str
) -> list[SymbolicLine]:
    """The lines of one rank."""
    weights = _weights(symbolic, layout)
    numbers = all(text.isdigit() for text in layout.values())
    experts = expert_paths(symbolic.ledger)

    def divided(line: SymbolicLine) -> SymbolicLine:
        by = ranks_of(line.path, AXIS.findall(line.spec), layout, of, line.path in experts)
        values = {key: value // prod(map(int, by)) for key, value in line.values.items()} if numbers else {}
        if not by and line.weights is None:
            return replace(line, values=values)
        assert isinstance(line.count, Factored)
        own = None if line.weights is None else weights[line.path]
        return replace(line, count=Divided(((line.count, by),)) if by else line.count, weights=own, values=values)

    return [divided(line) for line in lines]


def total_of_rank(
    ledger: Ledger, symbolic: SymbolicModel, layout: Layout, counts: Mapping[str, Size], of: str
) -> RankTotal:
    """The total of one rank, with pipeline stages of the stage that has the most. `ledger`: the model's in numbers."""
    letters, experts = _letters(symbolic, of), expert_paths(symbolic.ledger)
    ends = _ends(ledger) if "pp" in layout else ({*counts}, {*counts})
    weigh = ledger.parameters() if of == "params" else dict.fromkeys(counts, 1)
    first, last = (sum(weigh[path] for path in end if path in counts) for end in ends)
    here = ends[0] if first > last else ends[1]
    total = _sum(
        symbolic,
        (
            (ranks_of(path, letters[path], layout, of, path in experts), count)
            for path, count in counts.items()
            if paths.repeated(path) or path in here
        ),
    )
    counted = (path for path in letters if path in counts and not ("ep" in layout and path in experts))
    stage: Literal["first", "last", "each"] = "each" if not first and not last else "first" if first > last else "last"
    return RankTotal(total, set().union(*(letters[path] for path in counted)), stage)


def expert_paths(ledger: Ledger) -> frozenset[str]:
    """Paths of the products of experts, and of their weights."""
    lines = [line for group in ledger.groups for line in group.lines if isinstance(line, Matmul) and line.bank]
    return frozenset(path for line in lines for path in (line.path, *(one.path for one in line.parameters())))


def ranks_of(path: str, letters: Iterable[str], layout: Layout, of: str, expert: bool = False) -> Ranks:
    """Numbers that divide the count of a line with these letters. Expert parallelism leaves each expert (`expert`)
    whole; the ranks of a batch share the experts' tokens."""
    axes = {*letters}
    tokens = {"S"} if of == "kv" else {"T", "O"} if of != "params" else set()
    whole = expert and "ep" in layout and of == "params"
    divided = {
        "tp": not whole and any(map(tp_axis, axes)),
        "ep": whole,
        "pp": paths.repeated(path),
        "cp": not axes.isdisjoint(tokens),
    }
    return tuple(text for axis, text in layout.items() if divided[axis])


def _weights(symbolic: SymbolicModel, layout: Layout) -> dict[str, Divided]:
    """The parameters of each module. The bias of a product that sums over a divided axis is whole."""
    known = {path: one for _, weights in symbolic.ledger.weights for path, one in weights.items()}
    modules = groupby(symbolic.ledger.parameters().items(), key=lambda one: paths.module_of(one[0]))
    return {
        module: _sum(
            symbolic,
            ((ranks_of(path, known[path].axes, layout, "params", known[path].bank), count) for path, count in tensors),
        )
        for module, tensors in modules
    }


def _sum(symbolic: SymbolicModel, counts: Iterable[tuple[Ranks, Size]]) -> Divided:
    """The sum of counts, each with the numbers that divide it."""
    parts: dict[Ranks, list[Any]] = {}
    for by, count in counts:
        parts.setdefault(by, []).append(count)
    return Divided(tuple((symbolic.formula(some).written, by) for by, some in parts.items()))


def _letters(symbolic: SymbolicModel, of: str) -> dict[str, set[str]]:
    """The letters of everything that is counted, by path."""
    found: dict[str, set[str]] = {}
    for group in symbolic.ledger.groups:
        for line in group.lines:
            found[line.path] = {*AXIS.findall(getattr(line, "spec", ""))}
            if of == "params":
                found |= {one.path: {*one.axes} for one in line.parameters()}
    return found


def _ends(ledger: Ledger) -> tuple[set[str], set[str]]:
    """Paths of the modules before the layers, and after them; a tied embedding is in both."""
    found: tuple[set[str], set[str]] = (set(), set())
    after = False
    for group in ledger.groups:
        after |= bool(group.numbers)
        for line in group.lines if not group.numbers else ():
            found[after].update({line.path, *(one.path for one in line.parameters())})
    return found
