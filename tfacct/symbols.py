"""A model with its sizes left open: every part's sizes replaced by whatever stands for their letters.

The same ledger then counts in symbols, and its totals are the formulas. sympy is imported where a symbol is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfacct import workload
from tfacct.architecture import Transformer, component_of, part_of
from tfacct.blocks import UNMARKED
from tfacct.errors import UsageError
from tfacct.factored import BLOCKS, KEYS, Factored, Polynomial, Powers, factored
from tfacct.ledger import KEPT, SEEN, Ledger, Product
from tfacct.lines import WINDOW
from tfacct.notation import Axes, Size
from tfacct.parts import Part
from tfacct.workload import Workload

ORDER = ("B", "T", "I", "C", "Cw", "O", BLOCKS, "Lw", "Le", "D", "N", "K", "G", "H", "F", "V", "P")
"""How letters follow each other in a product; others come behind them as they appear, and S is last."""
LEGEND = {
    **workload.AXES,
    BLOCKS: "blocks",
    "C": "tokens in the cache",
    "Cw": "tokens in the cache that a windowed block sees, min(C, W − 1)",
    SEEN: "keys a windowed block sees, T + min(S − T, W − 1)",
    KEPT: "keys a windowed block keeps, min(S, W)",
}
"""The letters that belong to no part."""


def with_sizes(shape: Transformer, size: Callable[[str], Size], fixed: frozenset[str] = frozenset()) -> Transformer:
    """The same model, biases and ties as they are, with `size(letter)` for each size and each stack's number of blocks.

    The letters in `fixed` keep their numbers.
    """

    def with_letters(part: Part) -> Any:
        return replace(part, **{field: size(letter) for field, letter in part.sizes().items() if letter not in fixed})

    letters = block_letters(shape)
    counts = [
        stack.count if letter in fixed else size(letter)
        for letter, stack in zip(letters, shape.every_stack, strict=True)
    ]
    return shape.mapped(with_letters, None if fixed.issuperset(letters) else counts)


def block_letters(shape: Transformer) -> list[str]:
    """The letter that counts the blocks of each stack: L, with Lw for windowed ones and Le for those of experts, or of
    an encoder, where there are others beside them."""
    marked = ("encoder", *UNMARKED)
    return [
        BLOCKS + "".join(word[0] if word in marked else word if word.isdigit() else "" for word in kind.split())
        for kind in shape.kinds()
    ]


def size_letters(shape: Transformer) -> dict[str, str]:
    """Every letter that is a size of its own, with its meaning, in the order of the parts."""
    return {letter: part.legend[letter] for part in shape.parts() for letter in part.sizes().values()}


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

    Of a model that keeps nothing they are T. In windowed blocks they are letters of their own, Sw and Sk or Cw + T, so
    that no formula holds a `min`. Raises UsageError where blocks of two kinds have different sizes by one letter.
    """
    import sympy

    own, stacks = size_letters(shape), block_letters(shape)
    _one_size_each(shape)
    windowed = WINDOW in own
    fixed = fixed | {WINDOW}
    numbers = {
        letter for part in shape.parts() for letter, size in part.axes().items() if letter not in own and size == 1
    }
    named = dict.fromkeys(
        letter for part in shape.parts() for letter in part.axes() if letter not in own and letter not in part.same
    )
    free = [letter for letter in (*own, *named) if letter not in fixed and letter not in numbers]
    reads, keeps = shape.encoder is not None, shape.ledger().keeps
    cached = cached and keeps
    if cached:
        workload_letters = ["B", "T", "C", *(["Cw"] if windowed else [])]
    else:
        workload_letters = ["B", "T", *([KEYS] if keeps else [])]
    workload_letters += ["I", "J"] if reads else []
    seen = [SEEN, KEPT] if windowed and not cached else []
    letters = _ordered([*workload_letters, *seen, *stacks, *free])
    symbols = {letter: sympy.Symbol(letter, positive=True, integer=True) for letter in letters}
    keys = symbols["C"] + symbols["T"] if cached else symbols[KEYS] if keeps else symbols["T"]
    in_window = symbols["Cw"] + symbols["T"] if windowed and cached else None
    symbolic = with_sizes(shape, symbols.__getitem__, fixed)
    legend = LEGEND | {letter: meaning for part in shape.parts() for letter, meaning in part.legend.items()}
    kinds = zip(stacks, shape.kinds(), strict=True)
    legend |= {letter: f"{kind} blocks".strip() for letter, kind in kinds}
    axes = {letter: size for part in symbolic.parts() for letter, size in part.axes().items()}
    legend |= {BLOCKS: "decoder blocks"} if reads else {}
    at = Workload(context=keys, tokens=symbols["T"], batch=symbols["B"]).axes()
    at |= {"I": symbols["I"], "J": symbols["J"]} if reads else {}
    if windowed:
        at |= {SEEN: in_window or symbols[SEEN], KEPT: in_window or symbols[KEPT]}
    return Opened(
        ledger=symbolic.ledger(),
        at=at,
        symbols=symbols,
        products={
            letter: powers for letter in named if letter in symbols and (powers := _product(axes[letter], symbols))
        },
        legend={letter: legend[letter] for letter in _ordered(legend)},
    )


def _one_size_each(shape: Transformer) -> None:
    """Refuse a letter that is two numbers: the formula has one symbol for each letter."""
    sizes: dict[str, Size] = {}
    for part in shape.parts():
        for letter, size in part.axes().items():
            if sizes.setdefault(letter, size) != size:
                raise UsageError(
                    f"{letter} is {sizes[letter]:,} in some parts and {size:,} in others: no formula is written"
                )


def _ordered(letters: Iterable[str]) -> list[str]:
    """Letters as they are written: the known ones first, then the others as they come, S last."""
    letters = dict.fromkeys(letters)
    last = ("J", KEYS, SEEN, KEPT)
    others = [letter for letter in letters if letter not in (*ORDER, *last)]
    return [letter for letter in (*ORDER, *others, *last) if letter in letters]
