"""Factored formulas as trees of plain data, for the interactive page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfacct.algebra.factored import Term
from tfacct.algebra.symbols import SymbolicModel, in_symbols
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import TfacctError
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import HALF


def formula_trees(ledger: Ledger, ways: Sequence[Transformer]) -> list[dict[str, Any]] | None:
    """Formulas of each alternative as trees, for further ones only if different.

    None if an axis has several sizes, or overlapping windows have several lengths.
    """
    if len({group.axes[HALF] for group in ledger.groups if HALF in group.axes}) > 1:
        return None
    try:
        symbolic = [in_symbols(way) for way in ways]
    except TfacctError:
        return None
    first, *others = map(_trees, symbolic)
    return [first, *({name: tree for name, tree in one.items() if tree != first.get(name)} for one in others)]


def _trees(model: SymbolicModel) -> dict[str, Any]:
    trees = {
        "flops": model.flops(lambda product: product.forward).written,
        "params": model.parameters().written,
        "cache": model.cached().written,
    }
    return {name: _tree(tree.term, tree.axis_names) for name, tree in trees.items() if tree.term.coefficient}


def _tree(term: Term, axis_names: Sequence[str]) -> list[Any]:
    """Term as [coefficient, axes with powers, terms inside]."""
    term = term.spread()
    powers = [
        axis if power == 1 else f"{axis}^{power}" for axis, power in zip(axis_names, term.powers, strict=True) if power
    ]
    inside = [[_tree(one, axis_names) for one in term.inside]] if term.inside else []
    return [term.coefficient, " ".join(powers), *inside]
