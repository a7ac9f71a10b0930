"""A model with symbols for its sizes: every part's sizes replaced by the symbols of its axes.

The same ledger then counts in symbols, and its totals are the formulas. sympy is imported where a symbol is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tfacct.algebra.factored import BLOCKS, KEYS, Factored, Polynomial, Powers, factored, in_front
from tfacct.architecture import axis_names
from tfacct.architecture.axis_names import Axis, Names
from tfacct.architecture.parts import Part, mixers
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.ledger import paths, workload
from tfacct.ledger.einsum import Axes, Size, renamed
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import CACHED_KEYS, VISIBLE_KEYS, Ledger
from tfacct.ledger.lines import CHUNK, FRONT, HALF, LONGEST, MERGE, RATES, WINDOW, WINDOWS, Matmul
from tfacct.ledger.workload import (
    CHUNKS,
    COMPRESSED,
    HALVES,
    MERGED,
    OF_WINDOWS,
    ONE_BY_ONE,
    OVERLAPPING,
    PADDED,
    PATCHES,
    TILES,
    Workload,
)

ORDER = (
    "B",
    "T",
    PATCHES,
    MERGED,
    CHUNKS,
    "I",
    *OF_WINDOWS,
    "C",
    "Cw",
    "O",
    BLOCKS,
    "Lw",
    "Le",
    "Lu",
    "D",
    "N",
    "K",
    "G",
    "H",
    "F",
    "V",
    "P",
)
"""How axes follow each other in a product; others come behind them as they appear, and S is last."""
LEGEND = {
    **workload.AXES,
    BLOCKS: "layers",
    "C": "tokens in the cache",
    "Cw": "cached tokens visible in a windowed layer, min(C, W − 1)",
    VISIBLE_KEYS: "keys visible in a windowed layer, T + min(S − T, W − 1)",
    CACHED_KEYS: "keys cached in a windowed layer, min(S, W)",
    CHUNKS: "chunks of new tokens, T / Pc rounded up; 0 in a decode step",  # the number for Pc, where it is fixed
    PATCHES: "patches of the image, T − Xc",  # the number for Xc, where it is fixed
    MERGED: "rows that positions are merged into, T / Mp",  # the number for Mp, where it is fixed
    TILES: "windows that see themselves alone, T / Wp",
    PADDED: "tokens that are read and those that pad them to whole windows, I / Wl rounded up · Wl",
    HALVES: "halves of windows in them, Ip / Wo",
    OVERLAPPING: "windows in them, each of which shares a half with the next, Ih − 1; 0 where none is read",
    "Sc": "lightly compressed keys, S / Mc rounded down",
    "Sh": "heavily compressed keys, S / Mh rounded down",
    "Tc": "lightly compressed keys made in the step",
    "Th": "heavily compressed keys made in the step",
    "Zc": "tokens that wait for a lightly compressed key to be full, S − Sc · Mc",
    "Zh": "tokens that wait for a heavily compressed key to be full, S − Sh · Mh",
    "Uc": "whether there is a lightly compressed key: 1, else 0",
    ONE_BY_ONE: "tokens that the recurrence takes one by one: 1 in a decode step, else 0",
}
"""The axes that belong to no part."""
MARKED = (
    *("encoder", "attention", "latent", "cross", "windowed", "experts", "sparse", "unrotated", "borrowing"),
    "following",
    "lightly",
    "heavily",
)
"""Kinds of blocks that an axis of theirs tells from the rest."""


def with_sizes(shape: Transformer, size: Callable[[str], Size], fixed: frozenset[str] = frozenset()) -> Transformer:
    """The same model, biases and ties as they are, with `size(axis)` for each size and each stack's number of blocks.

    Axes are those of the model; the ones in `fixed` keep their numbers.
    """

    def with_letters(names: Names) -> Callable[[Part], Any]:
        def changed(axis: str, old: Size) -> Size:
            called = names.get(axis, axis)
            return old if called in fixed else size(called)

        return lambda part: part.resized(changed)

    blocks = layer_axes(shape)
    counts = [
        stack.count if axis in fixed else size(axis) for axis, stack in zip(blocks, shape.every_stack, strict=True)
    ]
    changes = [with_letters(names) for names in axis_names.names(shape)]
    return shape.mapped_in_places(changes, None if fixed.issuperset(blocks) else counts)


def layer_axes(shape: Transformer) -> list[str]:
    """The axis that counts the blocks of each stack: L, with Lw for windowed ones, Le for those of experts, or of an
    encoder, Ls for those whose gates are sparse, Lu for those that do not rotate, Lb for those that borrow a cache, Lf
    for those that take over the keys that others choose, La, Lm and Lc for those of attention, Mamba and convolutions,
    where there are others beside them. Beside lightning attention, latent attention is La."""
    kinds = [kind.split() for kind in shape.kinds()]
    first = {"latent": "a"} if any("lightning" in kind for kind in kinds) else {}
    return [
        BLOCKS
        + "".join(
            first.get(word, word[0]) if word in MARKED or word in mixers() else word if word.isdigit() else ""
            for word in kind
        )
        for kind in kinds
    ]


def block_meanings(shape: Transformer) -> dict[str, str]:
    """Meaning of each axis that counts blocks."""

    def meaning(kind: str) -> str:
        return f"layers of kind {kind}" if kind.isdigit() else f"{kind.replace('experts', 'expert')} layers".strip()

    meanings = {axis: meaning(kind) for axis, kind in zip(layer_axes(shape), shape.kinds(), strict=True)}
    return meanings | ({BLOCKS: "decoder layers"} if shape.encoder is not None else {})


def size_axes(shape: Transformer) -> dict[str, str]:
    """Every axis that is a size of its own, with its meaning, in the order of the parts."""
    return {name: axis.meaning for name, axis in axis_names.explained(shape).items() if axis.made is None}


@record
class Formula:
    """A count in symbols, and how it is written."""

    expression: Any
    written: Factored


@record
class SymbolicModel:
    """A model in symbols: its ledger, and its totals component by component.

    `symbols` are by axis, in the order in which they are written; `shares` are those that are written for a share of
    another. `products` are the axes that are written for a
    product of others, N for K · G; `legend` says what each means. `at` is what the workload binds, with logits for
    every position.
    """

    ledger: Ledger
    at: Axes
    symbols: Mapping[str, Any]
    products: Mapping[str, Powers]
    legend: Mapping[str, str]
    shares: Mapping[Any, Any] = field(default_factory=dict)

    def factors(self, axis: str) -> list[str]:
        """The axes whose product `axis` is written for."""
        product = self.products[axis]
        return [factor for factor, power in zip(self.symbols, product, strict=True) for _ in range(power)]

    def flops(self, of: Callable[[Product], Size]) -> Formula:
        """What `of` says of each product, forward FLOPs or backward, summed by component."""
        components: dict[str, Size] = {}
        for product in self.ledger.products(self.at):
            name = paths.component_of(product.line)
            components[name] = components.get(name, 0) + of(product)
        return self.formula(components.values())

    def parameters(self) -> Formula:
        """Formula of the stored parameters by part, weights and biases apart; norms and biases behind the weights."""
        weights: dict[str, Size] = {}
        vectors: dict[tuple[str, str], Size] = {}
        for path, count in self.ledger.parameters().items():
            part, name = paths.heading_of(path), paths.name_of(path)
            if name == "weight" and part != paths.NORMS:
                weights[part] = weights.get(part, 0) + count
            else:
                vectors[part, name] = vectors.get((part, name), 0) + count
        return self.formula(weights.values(), vectors.values())

    def cached(self) -> Formula:
        """Formula of the elements cached between steps, by part."""
        parts: dict[str, Size] = {}
        for path, count in self.ledger.states(self.at).items():
            part = paths.heading_of(path)
            parts[part] = parts.get(part, 0) + count
        return self.formula(parts.values())

    def formula(self, parts: Iterable[Size], after: Iterable[Size] = ()) -> Formula:
        """Formula of the sum of `parts`, each of them one term, and of `after`, which stands behind them."""
        import sympy

        parts, after = list(parts), list(after)
        written = factored(tuple(self.symbols), map(self._polynomial, parts), map(self._polynomial, after))
        return Formula(sympy.expand(sympy.sympify(sum([*parts, *after])).subs(self.shares)), written)

    def in_front(self, expression: Size, *fronts: Sequence[str]) -> Factored:
        """An expression with these axes in front of brackets, one set after the other; its coefficients stay."""
        return in_front(tuple(self.symbols), self._polynomial(expression), fronts)

    def with_letter(self, axis: str, meaning: str) -> SymbolicModel:
        """The same with one more axis, which is a size of its own."""
        import sympy

        symbols = {**self.symbols, axis: sympy.Symbol(axis, positive=True, integer=True)}
        products = {name: (*powers, 0) for name, powers in self.products.items()}
        return replace(self, symbols=symbols, products=products, legend={**self.legend, axis: meaning})

    def _polynomial(self, expression: Size) -> Polynomial:
        """The terms of an expression, with N for K · G."""
        found: dict[Powers, int] = {}
        for powers, count in _terms(expression, self.symbols).items():
            for axis, product in self.products.items():
                often = min(power // factor for power, factor in zip(powers, product, strict=True) if factor)
                powers = tuple(
                    power - often * factor + often * (name == axis)
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
    """The axes that multiply to an expression; None where it is no such product."""
    terms = list(_terms(expression, symbols).items())
    return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 and any(terms[0][0]) else None


def in_symbols(shape: Transformer, *, fixed: frozenset[str] = frozenset(), cached: bool = False) -> SymbolicModel:
    """Return the model in symbols, except for the axes in `fixed`. The keys are S, or, if `cached`, C + T.

    Of a model that keeps nothing they are T. In windowed blocks they are axes of their own, Sw and Sk or Cw + T, so
    that no formula holds a `min`. Raises UsageError where blocks of two kinds have different sizes by one axis.
    """
    import sympy

    whole = cached  # as a proof wants it: S is C + T, and patches are T less the tokens in front of them
    explained, stacks = axis_names.explained(shape), layer_axes(shape)
    _one_size_each(shape)
    windowed = WINDOW in explained
    fixed = frozenset(name for name, axis in explained.items() if axis.own in (*fixed, *WINDOWS))
    made = {name: axis.made for name, axis in explained.items() if axis.made is not None}
    named = [name for name, text in made.items() if text not in explained and not text.isdigit()]
    own = dict.fromkeys(name for name in (*axis_names.sizes(shape), *explained) if name not in made)
    free = [name for name in (*own, *named) if name not in fixed]
    reads, keeps = shape.encoder is not None, shape.ledger().has_cache
    cached = cached and keeps
    workload_axes = ["B", "T", "C", *(["Cw"] if windowed else [])] if cached else ["B", "T", *([KEYS] if keeps else [])]
    workload_axes += ["I", "J"] if reads else []
    marks = [name.removeprefix(HALF) for name, axis in explained.items() if axis.own == HALF]
    of_windows = [PADDED, *(f"{axis}{mark}" for mark in marks for axis in (HALVES, OVERLAPPING))]
    workload_axes += of_windows if LONGEST in explained else ()
    seen = [VISIBLE_KEYS, CACHED_KEYS] if windowed and not cached else []
    seen += [CHUNKS] if any(axis.own == CHUNK for axis in explained.values()) else []
    compressing = [kind for kind, rate in RATES.items() if rate in explained]
    named_keys = [COMPRESSED[what][kind] for kind in compressing for what in COMPRESSED if kind in COMPRESSED[what]]
    seen += [axis for axis in named_keys if not axis.startswith("T")]  # no count has those made in the step
    seen += [ONE_BY_ONE] if _multiplies(shape, ONE_BY_ONE) else []
    seen += [PATCHES] if FRONT in explained and not whole else []
    rows = next((part for part in shape.parts() if getattr(part, "by_rows", False)), None)
    seen += [MERGED] if rows is not None else []
    base = {name: axis.own for name, axis in explained.items()}
    symbols = {
        axis: sympy.Symbol(axis, positive=True, integer=True)
        for axis in _ordered([*workload_axes, *seen, *stacks, *free], base)
    }
    keys = symbols["C"] + symbols["T"] if cached else symbols[KEYS] if keeps else symbols["T"]
    in_window = symbols["Cw"] + symbols["T"] if windowed and cached else None
    symbolic = with_sizes(shape, symbols.__getitem__, fixed)
    legend = LEGEND | _in_every_kind(explained) | {name: axis.meaning for name, axis in explained.items()}
    legend |= block_meanings(shape)
    numbers = {
        axis: str(axis_names.sizes(shape).get(axis)) for axis in (CHUNK, FRONT, MERGE, LONGEST) if axis not in free
    }
    numbers |= {} if reads else {"I": "T"}
    if rows is not None and FRONT in rows.axes():
        legend[MERGED] = legend[MERGED].replace("T /", f"(T − {FRONT}) /")
    legend |= {axis: renamed(legend[axis], numbers) for axis in (CHUNKS, PATCHES, MERGED, PADDED)}
    for mark in marks:
        half, halves = f"{HALF}{mark}", f"{HALVES}{mark}"
        legend[halves] = renamed(LEGEND[HALVES], {HALF: half if half in free else str(axis_names.sizes(shape)[half])})
        legend[f"{OVERLAPPING}{mark}"] = renamed(LEGEND[OVERLAPPING], {HALVES: halves})
    axes = {name: size for group in symbolic.ledger().groups for name, size in group.named().items()}
    at = Workload(context=keys, tokens=symbols["T"], batch=symbols["B"]).axes()
    at |= {"I": symbols["I"], "J": symbols["J"]} if reads else {}
    if windowed:
        at |= {VISIBLE_KEYS: in_window or symbols[VISIBLE_KEYS], CACHED_KEYS: in_window or symbols[CACHED_KEYS]}
    if CHUNKS in symbols:
        one = symbols.get(ONE_BY_ONE, sympy.Symbol(ONE_BY_ONE))  # which most products do not have
        at |= {CHUNKS: symbols[CHUNKS], ONE_BY_ONE: one}
    at |= {axis: symbols[axis] for axis in (PATCHES, MERGED, *of_windows) if axis in symbols}
    at |= {axis: symbols.get(axis, sympy.Symbol(axis)) for axis in named_keys}
    return SymbolicModel(
        ledger=symbolic.ledger(),
        at=at,
        symbols=symbols,
        products={axis: powers for axis in named if (powers := _product(axes[axis], symbols))},
        legend={axis: legend[axis] for axis in _ordered(legend, base)},
        shares=_shares(shape, rows, symbols, marks) if whole else {},
    )


def _shares(shape: Transformer, rows: Part | None, symbols: Mapping[str, Any], marks: Sequence[str]) -> dict[Any, Any]:
    """What the axes of merged rows and of whole windows stand for: of a source I is J there, or none."""
    if LONGEST in (sizes := axis_names.sizes(shape)):
        source, seen = (symbols["T"],) * 2 if shape.encoder is None else (symbols["I"], symbols["J"])
        found = {symbols[PADDED]: source}
        for mark in marks:
            halves = source / symbols.get(f"{HALF}{mark}", sizes[f"{HALF}{mark}"])
            found |= {symbols[f"{HALVES}{mark}"]: halves}
            found |= {symbols[f"{OVERLAPPING}{mark}"]: halves - source / seen}
        return found
    if rows is None:
        return {}
    return {symbols[MERGED]: (symbols["T"] - rows.axes().get(FRONT, 0)) / rows.axes()[MERGE]}


def _multiplies(shape: Transformer, axis: str) -> bool:
    """True if a product of the model has this axis."""
    lines = (line for group in shape.ledger().groups for line in group.lines)
    return any(isinstance(line, Matmul) and axis in line.einsum.every for line in lines)


def _in_every_kind(explained: Mapping[str, Axis]) -> dict[str, str]:
    """The parts' axes that have other names in every kind of blocks, for a line that stands for all of them."""
    found: dict[str, list[str]] = {}
    for name, axis in explained.items():
        found.setdefault(axis.own, []).append(name)
    return {own: f"any of {', '.join(names)}" for own, names in found.items() if own not in names}


def _one_size_each(shape: Transformer) -> None:
    """Refuse an axis that is two numbers: the formula has one symbol for each axis."""
    sizes: dict[str, Size] = {}
    for place, names in zip(axis_names.places(shape), axis_names.names(shape), strict=True):
        for part in place.parts:
            for axis, size in part.axes().items():
                # Chunks of two lengths have two numbers, and Nc is one axis.
                name = axis if axis == CHUNK else names.get(axis, axis)
                if sizes.setdefault(name, size) != size:
                    raise UsageError(
                        f"{name} is {sizes[name]:,} in some parts and {size:,} in others: no formula is written, and"
                        " none is proven",
                        "counts and verify take both sizes; give the parts one to see a formula",
                    )


def _ordered(found: Iterable[str], base: Mapping[str, str]) -> list[str]:
    """Axes as they are written: the known ones first, each with its marked ones behind it, then the others as they
    come, S last."""
    found = list(dict.fromkeys(found))
    last = ("J", KEYS, VISIBLE_KEYS, CACHED_KEYS)

    def rank(axis: str) -> tuple[int, int]:
        own = base.get(axis, axis)
        if own in ORDER:
            return 0, ORDER.index(own)
        return (2, last.index(own)) if own in last else (1, 0)

    return sorted(found, key=rank)
