"""A model with its sizes left open: every part's sizes replaced by whatever stands for their letters.

The same ledger then counts in symbols, and its totals are the formulas. sympy is imported where a symbol is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfacct import workload
from tfacct.architecture import Transformer, component_of, part_of
from tfacct.factored import BLOCKS, KEYS, Factored, Polynomial, Powers, factored
from tfacct.ledger import Ledger, Product
from tfacct.notation import Axes, Size
from tfacct.parts import Part
from tfacct.workload import Workload

ORDER = ("B", "T", "C", "O", BLOCKS, "D", "N", "K", "G", "H", "F", "V", "P")
"""How letters follow each other in a product; others come behind them as they appear, and S is last."""
LEGEND = {**workload.AXES, BLOCKS: "blocks", "C": "tokens in the cache"}
"""The letters that belong to no part."""


def with_sizes(
    shape: Transformer, size: Callable[[str], Size], layers: Size, fixed: frozenset[str] = frozenset()
) -> Transformer:
    """The same model, biases and ties as they are, with `size(letter)` for each size and `layers` blocks a stack.

    The letters in `fixed` keep their numbers.
    """

    def opened(part: Part) -> Any:
        return replace(part, **{field: size(letter) for field, letter in part.letters.items() if letter not in fixed})

    return shape.mapped(opened, lambda _: layers)


def size_letters(shape: Transformer) -> dict[str, str]:
    """Every letter that is a size of its own, with its meaning, in the order of the parts."""
    return {letter: part.legend[letter] for part in _parts(shape) for letter in part.letters.values()}


def _parts(shape: Transformer) -> list[Part]:
    ends = [shape.embed, *([shape.positions] if shape.positions else []), shape.final_norm, shape.head]
    return [*ends, *(part for stack in shape.stacks for _, part in stack.block.parts())]


@dataclass(frozen=True, slots=True)
class Formula:
    """A count in symbols, and how it is written."""

    expression: Any
    written: Factored


@dataclass(frozen=True, slots=True)
class Opened:
    """A model in symbols: its ledger, and its totals component by component.

    `symbols` are by letter, in the order in which they are written. `products` are the letters that are written for a
    product of others, N for K · G; `legend` says what each means. `at` is what the workload binds, with logits for
    every position.
    """

    ledger: Ledger
    at: Axes
    symbols: Mapping[str, Any]
    products: Mapping[str, Powers]
    legend: Mapping[str, str]

    def factors(self, letter: str) -> list[str]:
        """The letters whose product `letter` is written for."""
        product = self.products[letter]
        return [factor for factor, power in zip(self.symbols, product, strict=True) for _ in range(power)]

    def flops(self, of: Callable[[Product], Size]) -> Formula:
        """What `of` says of each product, forward FLOPs or backward, summed by component."""
        components: dict[str, Size] = {}
        for product in self.ledger.products(self.at):
            name = component_of(product.path, product.line)
            components[name] = components.get(name, 0) + of(product)
        return self.formula(components.values())

    def parameters(self) -> Formula:
        """Stored parameters by part, weights and biases apart; norms and biases behind the weights."""
        weights: dict[str, Size] = {}
        vectors: dict[tuple[str, str], Size] = {}
        for path, count in self.ledger.parameters().items():
            part, name = part_of(path), path.rpartition(".")[2]
            if name == "weight" and part != "norms":
                weights[part] = weights.get(part, 0) + count
            else:
                vectors[part, name] = vectors.get((part, name), 0) + count
        return self.formula(weights.values(), vectors.values())

    def cached(self) -> Formula:
        """Elements kept between steps, by part."""
        parts: dict[str, Size] = {}
        for path, count in self.ledger.states(self.at).items():
            parts[part_of(path)] = parts.get(part_of(path), 0) + count
        return self.formula(parts.values())

    def formula(self, parts: Iterable[Size], after: Iterable[Size] = ()) -> Formula:
        """The sum of `parts`, each of them one term, and of `after`, which stands behind them."""
        import sympy

        parts, after = list(parts), list(after)
        written = factored(tuple(self.symbols), map(self._polynomial, parts), map(self._polynomial, after))
        return Formula(sympy.expand(sum([*parts, *after])), written)

    def _polynomial(self, expression: Size) -> Polynomial:
        """The terms of an expression, with N for K · G."""
        found: dict[Powers, int] = {}
        for powers, count in _terms(expression, self.symbols).items():
            for letter, product in self.products.items():
                often = min(power // factor for power, factor in zip(powers, product, strict=True) if factor)
                powers = tuple(
                    power - often * factor + often * (name == letter)
                    for name, power, factor in zip(self.symbols, powers, product, strict=True)
                )
            found[powers] = found.get(powers, 0) + count
        return found


def _terms(expression: Size, symbols: Mapping[str, Any]) -> Polynomial:
    from sympy import Poly

    terms = {powers: count for powers, count in Poly(expression, *symbols.values()).terms() if count}
    if not all(count.is_Integer for count in terms.values()):
        raise ValueError(f"not a polynomial with whole coefficients: {expression}")
    return {powers: int(count) for powers, count in terms.items()}


def _product(expression: Size, symbols: Mapping[str, Any]) -> Powers | None:
    """The letters that multiply to an expression; None where it is no such product."""
    terms = list(_terms(expression, symbols).items())
    return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 and any(terms[0][0]) else None


def opened(shape: Transformer, *, fixed: frozenset[str] = frozenset(), cached: bool = False) -> Opened:
    """The model in symbols, but for the letters in `fixed`. The keys are S, or, where `cached`, C + T.

    Every stack gets the same symbols: for a model whose blocks are all of one kind.
    """
    import sympy

    own, parts = size_letters(shape), _parts(shape)
    named = dict.fromkeys(letter for part in parts for letter in part.legend if letter not in own)
    free = [letter for letter in (*own, *named) if letter not in fixed]
    letters = _ordered(["B", "T", "C" if cached else KEYS, BLOCKS, *free])
    symbols = {letter: sympy.Symbol(letter, positive=True, integer=True) for letter in letters}
    keys = symbols["C"] + symbols["T"] if cached else symbols[KEYS]
    symbolic = with_sizes(shape, symbols.__getitem__, symbols[BLOCKS], fixed)
    legend = LEGEND | {letter: meaning for part in parts for letter, meaning in part.legend.items()}
    axes = {letter: size for part in _parts(symbolic) for letter, size in part.axes().items()}
    return Opened(
        ledger=symbolic.ledger(),
        at=Workload(context=keys, tokens=symbols["T"], batch=symbols["B"]).axes(),
        symbols=symbols,
        products={letter: powers for letter in named if (powers := _product(axes[letter], symbols))},
        legend={letter: legend[letter] for letter in _ordered(legend)},
    )


def _ordered(letters: Iterable[str]) -> list[str]:
    """Letters as they are written: the known ones first, then the others as they come, S last."""
    letters = dict.fromkeys(letters)
    others = [letter for letter in letters if letter not in (*ORDER, KEYS)]
    return [letter for letter in (*ORDER, *others, KEYS) if letter in letters]
