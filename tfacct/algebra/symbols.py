"""A model with symbols for its sizes, whose ledger then gives formulas.

sympy is imported only where symbols are created.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tfacct.algebra.factored import BLOCKS, KEYS, Factored, Polynomial, Powers, factored, in_front
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
    "B", "T", PATCHES, MERGED, CHUNKS, "I", *OF_WINDOWS, "C", "Cw", "O", BLOCKS, "Lw", "Le", "Lu",
    "D", "N", "K", "G", "H", "F", "V", "P",
)  # fmt: skip
"""Order of axes in a product; others come after them in order of appearance, and S is last."""
LEGEND = {
    **workload.AXES,
    BLOCKS: "layers",
    "C": "tokens in the cache",
    "Cw": "cached tokens visible in a windowed layer, min(C, W − 1)",
    VISIBLE_KEYS: "keys visible in a windowed layer, min(S, T + W − 1)",
    CACHED_KEYS: "keys cached in a windowed layer, min(S, W)",
    CHUNKS: "chunks of new tokens, T / Pc rounded up; 0 in a decode step",  # Pc becomes its number if it is fixed
    PATCHES: "patches of the image, T − Xc",  # Xc becomes its number if it is fixed
    MERGED: "rows after merging, T / Mp",  # Mp becomes its number if it is fixed
    TILES: "windows, each attending only to itself, T / Wp",
    PADDED: "source tokens padded to whole windows, I / Wl rounded up · Wl",
    HALVES: "half windows, Ip / Wo",
    OVERLAPPING: "overlapping windows, Ih − 1; 0 without a source",
    "Sc": "lightly compressed keys, S / Mc rounded down",
    "Sh": "heavily compressed keys, S / Mh rounded down",
    "Tc": "lightly compressed keys computed in the step",
    "Th": "heavily compressed keys computed in the step",
    "Zc": "tokens not yet in a lightly compressed key, S − Sc · Mc",
    "Zh": "tokens not yet in a heavily compressed key, S − Sh · Mh",
    "Uc": "1 if there is a lightly compressed key, else 0",
    ONE_BY_ONE: "tokens that update the state one at a time, not in chunks: 1 in a decode step, else 0",
}
"""Meanings of the axes that belong to no part."""
MARKED = (
    "encoder", "attention", "latent", "cross", "windowed", "experts", "sparse", "unrotated", "borrowing", "following",
    "lightly", "heavily",
)  # fmt: skip
"""Kinds of layers that have a separate axis for their number."""


def with_sizes(shape: Transformer, size: Callable[[str], Size], fixed: frozenset[str] = frozenset()) -> Transformer:
    """The same model with `size(axis)` for each size and each stack's number of layers.

    Axes have the model's names; those in `fixed` keep their numbers.
    """

    def resizing(names: Names) -> Callable[[Part], Any]:
        def changed(axis: str, old: Size) -> Size:
            called = names.get(axis, axis)
            return old if called in fixed else size(called)

        return lambda part: part.resized(changed)

    blocks = layer_axes(shape)
    counts = [
        stack.count if axis in fixed else size(axis) for axis, stack in zip(blocks, shape.every_stack, strict=True)
    ]
    changes = [resizing(names) for names in shape.axis_names()]
    return shape.mapped_in_places(changes, None if fixed.issuperset(blocks) else counts)


def layer_axes(shape: Transformer) -> list[str]:
    """Axis for the number of layers of each stack.

    L; Lw windowed; Le with experts, or of an encoder; Ls with sparse gates; Lu without rotary embedding; Lb with a
    borrowed cache; Lf with keys chosen by other layers; La, Lm and Lc attention, Mamba and convolutions in a hybrid.
    Next to lightning attention, latent attention is La.
    """
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
    """Meaning of each axis for a number of layers."""

    def meaning(kind: str) -> str:
        return f"layers of kind {kind}" if kind.isdigit() else f"{kind.replace('experts', 'expert')} layers".strip()

    meanings = {axis: meaning(kind) for axis, kind in zip(layer_axes(shape), shape.kinds(), strict=True)}
    return meanings | ({BLOCKS: "decoder layers"} if shape.encoder is not None else {})


def axis_meanings(shape: Transformer) -> dict[str, str]:
    """Meaning of each axis of a model and of its steps."""
    parts = {name: axis.meaning for name, axis in shape.declared_axes().items()}
    return LEGEND | parts | block_meanings(shape)


def size_axes(shape: Transformer) -> dict[str, str]:
    """Axes that are not derived, with their meanings, in the order of the parts."""
    return {name: axis.meaning for name, axis in shape.declared_axes().items() if axis.made is None}


@record
class Formula:
    """A count in symbols: sympy expression and factored form."""

    expression: Any
    written: Factored


@record
class SymbolicModel:
    """A model in symbols: ledger, and totals by component.

    `symbols` are by axis, in the order of a product. `shares`: substitutions for symbols that are fractions of others.
    `products`: axes for a product of others, N for K · G. `legend`: meaning of each axis. `at`: sizes of the workload,
    with logits for every position.
    """

    ledger: Ledger
    at: Axes
    symbols: Mapping[str, Any]
    products: Mapping[str, Powers]
    legend: Mapping[str, str]
    shares: Mapping[Any, Any] = field(default_factory=dict)

    def factors(self, axis: str) -> list[str]:
        """Factors of the product that `axis` stands for."""
        product = self.products[axis]
        return [factor for factor, power in zip(self.symbols, product, strict=True) for _ in range(power)]

    def flops(self, of: Callable[[Product], Size]) -> Formula:
        """Formula of `of(product)`, such as forward FLOPs, summed by component."""
        components: dict[str, Size] = {}
        for product in self.ledger.products(self.at):
            name = paths.component_of(product.line)
            components[name] = components.get(name, 0) + of(product)
        return self.formula(components.values())

    def parameters(self) -> Formula:
        """Formula of the stored parameters by part: weights first, then norms and biases."""
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
        """Formula of the sum of `parts`, each one term, followed by `after`."""
        import sympy

        parts, after = list(parts), list(after)
        written = factored(tuple(self.symbols), map(self._polynomial, parts), map(self._polynomial, after))
        return Formula(sympy.expand(sympy.sympify(sum([*parts, *after])).subs(self.shares)), written)

    def in_front(self, expression: Size, *fronts: Sequence[str]) -> Factored:
        """Expression with these axes taken out of brackets, one set after the other; coefficients are not factored."""
        return in_front(tuple(self.symbols), self._polynomial(expression), fronts)

    def _polynomial(self, expression: Size) -> Polynomial:
        """Terms of an expression, with N for K · G."""
        found: dict[Powers, int] = {}
        for powers, count in _terms(expression, self.symbols).items():
            for axis, product in self.products.items():
                often = min(power // factor for power, factor in zip(powers, product, strict=True) if factor)
                powers = tuple(
                    power - often * factor + (often if name == axis else 0)
                    for name, power, factor in zip(self.symbols, powers, product, strict=True)
                )
            found[powers] = found.get(powers, 0) + count
        return found


def _terms(expression: Size, symbols: Mapping[str, Any]) -> Polynomial:
    from sympy import sympify
    from sympy.polys.polyutils import dict_from_expr

    found, _ = dict_from_expr(sympify(expression), gens=tuple(symbols.values()))
    terms = {powers: count for powers, count in sorted(found.items(), reverse=True) if count}
    if not all(count.is_Integer for count in terms.values()):
        raise ValueError(f"not a polynomial with whole coefficients: {expression}")
    return {powers: int(count) for powers, count in terms.items()}


def _product(expression: Size, symbols: Mapping[str, Any]) -> Powers | None:
    """Axes with this product; None if the expression is not a product of axes."""
    terms = list(_terms(expression, symbols).items())
    return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 and any(terms[0][0]) else None


def in_symbols(shape: Transformer, *, fixed: frozenset[str] = frozenset(), cached: bool = False) -> SymbolicModel:
    """Return the model in symbols, except for the axes in `fixed`.

    Keys are S or, if `cached`, C + T, for a proof; without a cache they are T. In windowed layers they are the axes Sw
    and Sk, or Cw + T, so that formulas have no `min`. Raises UsageError if an axis has different sizes.
    """
    import sympy

    explained = shape.declared_axes()
    _check_single_sizes(shape)
    fixed = frozenset(name for name, axis in explained.items() if axis.part_axis in (*fixed, *WINDOWS))
    made = {name: axis.made for name, axis in explained.items() if axis.made is not None}
    named = [name for name, text in made.items() if text not in explained and not text.isdigit()]
    sizes = dict.fromkeys(name for name in (*shape.axis_sizes(), *explained) if name not in made)
    free = [name for name in (*sizes, *named) if name not in fixed]
    step = _step_of(shape, explained, for_proof=cached)
    base = {name: axis.part_axis for name, axis in explained.items()}
    symbols = {
        axis: sympy.Symbol(axis, positive=True, integer=True)
        for axis in in_product([*step.axes(), *layer_axes(shape), *free], base)
    }
    ledger = with_sizes(shape, symbols.__getitem__, fixed).ledger()
    axes = {name: size for group in ledger.groups for name, size in group.named().items()}
    legend = _legend(shape, explained, step, free)
    return SymbolicModel(
        ledger=ledger,
        at=_sizes_of_step(step, symbols),
        symbols=symbols,
        products={axis: powers for axis in named if (powers := _product(axes[axis], symbols))},
        legend={axis: legend[axis] for axis in in_product(legend, base)},
        shares=_shares(shape, step, symbols) if step.for_proof else {},
    )


@record
class _Step:
    """What a step of a model in symbols depends on.

    `for_proof`: keys are the cached tokens C and the new ones, and patches are T minus the tokens before them. `rows`:
    the part that merges patches to rows with their own axis. `compressed`: axes of compressed keys. `windows`: axes of
    overlapping windows, with a mark for each of several lengths (`marks`).
    """

    for_proof: bool
    reads_source: bool
    has_cache: bool
    has_windows: bool
    has_chunks: bool
    has_one_by_one: bool
    has_front: bool
    rows: Part | None
    compressed: tuple[str, ...]
    windows: tuple[str, ...]
    marks: tuple[str, ...]

    @property
    def splits_keys(self) -> bool:
        """True if keys are C + T."""
        return self.for_proof and self.has_cache

    def axes(self) -> list[str]:
        """Axes of the step that get a symbol."""
        found = ["B", "T"]
        if self.splits_keys:
            found += ["C", "Cw"] if self.has_windows else ["C"]
        elif self.has_cache:
            found.append(KEYS)
        if self.reads_source:
            found += ["I", "J"]
        found += self.windows
        if self.has_windows and not self.splits_keys:
            found += [VISIBLE_KEYS, CACHED_KEYS]
        if self.has_chunks:
            found.append(CHUNKS)
        found += [axis for axis in self.compressed if not axis.startswith("T")]  # no count depends on those of the step
        if self.has_one_by_one:
            found.append(ONE_BY_ONE)
        if self.has_front and not self.for_proof:
            found.append(PATCHES)
        if self.rows is not None:
            found.append(MERGED)
        return found


def _step_of(shape: Transformer, explained: Mapping[str, Axis], *, for_proof: bool) -> _Step:
    ledger, part_axes = shape.ledger(), [axis.part_axis for axis in explained.values()]
    kinds = [kind for kind, rate in RATES.items() if rate in explained]
    marks = tuple(name.removeprefix(HALF) for name, axis in explained.items() if axis.part_axis == HALF)
    windows = (PADDED, *(f"{axis}{mark}" for mark in marks for axis in (HALVES, OVERLAPPING)))
    return _Step(
        for_proof=for_proof,
        reads_source=shape.encoder is not None,
        has_cache=ledger.has_cache,
        has_windows=WINDOW in explained,
        has_chunks=CHUNK in part_axes,
        has_one_by_one=_multiplies(ledger, ONE_BY_ONE),
        has_front=FRONT in explained,
        rows=next((part for part in shape.parts() if getattr(part, "by_rows", False)), None),
        compressed=tuple(named[kind] for kind in kinds for named in COMPRESSED.values() if kind in named),
        windows=windows if LONGEST in explained else (),
        marks=marks,
    )


def _sizes_of_step(step: _Step, symbols: Mapping[str, Any]) -> Axes:
    """Symbols of the workload's axes, and of those that the ledger computes in a step."""
    import sympy

    keys = symbols["T"]
    if step.splits_keys:
        keys = symbols["C"] + symbols["T"]
    elif step.has_cache:
        keys = symbols[KEYS]
    at = Workload(context=keys, tokens=symbols["T"], batch=symbols["B"]).axes()
    if step.reads_source:
        at |= {"I": symbols["I"], "J": symbols["J"]}
    if step.has_windows and step.splits_keys:
        at |= dict.fromkeys((VISIBLE_KEYS, CACHED_KEYS), symbols["Cw"] + symbols["T"])
    elif step.has_windows:
        at |= {axis: symbols[axis] for axis in (VISIBLE_KEYS, CACHED_KEYS)}
    if step.has_chunks:
        one = symbols.get(ONE_BY_ONE, sympy.Symbol(ONE_BY_ONE))  # most matmuls do not have it
        at |= {CHUNKS: symbols[CHUNKS], ONE_BY_ONE: one}
    at |= {axis: symbols[axis] for axis in (PATCHES, MERGED, *step.windows) if axis in symbols}
    return at | {axis: symbols.get(axis, sympy.Symbol(axis)) for axis in step.compressed}


def _legend(shape: Transformer, explained: Mapping[str, Axis], step: _Step, free: Collection[str]) -> dict[str, str]:
    """Meanings of all axes, with the numbers of the sizes that are not `free`."""
    legend = LEGEND | _part_axis_meanings(explained) | {name: axis.meaning for name, axis in explained.items()}
    legend |= block_meanings(shape)
    sizes = shape.axis_sizes()
    numbers = {axis: str(sizes.get(axis)) for axis in (CHUNK, FRONT, MERGE, LONGEST) if axis not in free}
    if not step.reads_source:
        numbers["I"] = "T"
    if step.rows is not None and FRONT in step.rows.axes():
        legend[MERGED] = legend[MERGED].replace("T /", f"(T − {FRONT}) /")
    legend |= {axis: renamed(legend[axis], numbers) for axis in (CHUNKS, PATCHES, MERGED, PADDED)}
    for mark in step.marks:
        half, halves = f"{HALF}{mark}", f"{HALVES}{mark}"
        legend[halves] = renamed(LEGEND[HALVES], {HALF: half if half in free else str(sizes[half])})
        legend[f"{OVERLAPPING}{mark}"] = renamed(LEGEND[OVERLAPPING], {HALVES: halves})
    return legend


def _shares(shape: Transformer, step: _Step, symbols: Mapping[str, Any]) -> dict[Any, Any]:
    """Substitutions for the axes of merged rows and whole windows; of a source, I is J or 0."""
    sizes = shape.axis_sizes()
    if LONGEST in sizes:
        source, seen = (symbols["I"], symbols["J"]) if step.reads_source else (symbols["T"], symbols["T"])
        found = {symbols[PADDED]: source}
        for mark in step.marks:
            halves = source / symbols.get(f"{HALF}{mark}", sizes[f"{HALF}{mark}"])
            found |= {symbols[f"{HALVES}{mark}"]: halves}
            found |= {symbols[f"{OVERLAPPING}{mark}"]: halves - source / seen}
        return found
    if step.rows is None:
        return {}
    axes = step.rows.axes()
    return {symbols[MERGED]: (symbols["T"] - axes.get(FRONT, 0)) / axes[MERGE]}


def _multiplies(ledger: Ledger, axis: str) -> bool:
    """True if a matmul has this axis."""
    lines = (line for group in ledger.groups for line in group.lines)
    return any(isinstance(line, Matmul) and axis in line.einsum.every for line in lines)


def _part_axis_meanings(explained: Mapping[str, Axis]) -> dict[str, str]:
    """Meanings of part axes that are renamed in all kinds of layers, for lines that stand for all kinds."""
    found: dict[str, list[str]] = {}
    for name, axis in explained.items():
        found.setdefault(axis.part_axis, []).append(name)
    return {part_axis: f"any of {', '.join(names)}" for part_axis, names in found.items() if part_axis not in names}


def _check_single_sizes(shape: Transformer) -> None:
    """Check that each axis has one size, because a formula has one symbol for it. Raises UsageError."""
    sizes: dict[str, Size] = {}
    for place, names in shape.named_places():
        for part in place.parts:
            for axis, size in part.axes().items():
                # Chunks of two lengths have two numbers, and Nc is one axis.
                name = axis if axis == CHUNK else names.get(axis, axis)
                if sizes.setdefault(name, size) != size:
                    raise UsageError(
                        f"{name} is {sizes[name]:,} in some parts and {size:,} in others: there is no formula"
                        " and no proof",
                        "counts and `verify` support both sizes; use one size everywhere to get a formula",
                    )


def in_product(found: Iterable[str], base: Mapping[str, str]) -> list[str]:
    """Axes in the order of a product: known ones first, each followed by its renamed forms, then the others, S last."""
    found = list(dict.fromkeys(found))
    last = ("J", KEYS, VISIBLE_KEYS, CACHED_KEYS)

    def rank(axis: str) -> tuple[int, int]:
        part_axis = base.get(axis, axis)
        if part_axis in ORDER:
            return 0, ORDER.index(part_axis)
        return (2, last.index(part_axis)) if part_axis in last else (1, 0)

    return sorted(found, key=rank)
