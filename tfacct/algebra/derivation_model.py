"""A ledger evaluated with TracedInts: every count with its factors, and the steps of a derivation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tfacct.algebra import derivation
from tfacct.algebra.derivation import Factor, TracedInt
from tfacct.algebra.symbols import axis_meanings, in_product, layer_axes
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Axes, renamed, size
from tfacct.ledger.groups import CACHED_KEYS, VISIBLE_KEYS, Group, Ledger
from tfacct.ledger.lines import (
    ACTIVE,
    CHUNK,
    FRONT,
    HALF,
    LONGEST,
    RATES,
    SHARES,
    WINDOW,
    Matmul,
    State,
)
from tfacct.ledger.storage import Storage, Width
from tfacct.ledger.workload import (
    CHUNKS,
    COMPRESSED,
    HALVES,
    OF_WINDOWS,
    ONE_BY_ONE,
    OVERLAPPING,
    PATCHES,
    Workload,
)
from tfacct.output.derivation import Axis, Step


class Entry(NamedTuple):
    """A count of one line in one kind of layers, with its factors.

    `more`: specs of the gradients in a training step. `weights`: elements of the weight that are active for one token.
    """

    path: str
    spec: str
    factors: tuple[Factor, ...]
    value: int
    kind: str
    line: Matmul | None = None
    more: tuple[str, ...] = ()
    weights: int = 0

    def has(self, *names: str) -> str:
        """First factor with one of these axes, ignoring numbers at the end; empty if there is none."""
        there = [factor.axis for factor in self.factors]
        return next((axis for axis in there if axis.rstrip("0123456789") in names), "")

    def without(self, *names: str) -> int:
        """Product of all factors except those of these axes."""
        value = 1
        for factor in self.factors:
            value *= 1 if factor.axis in names else factor.value
        return value


@record
class DerivationModel:
    """A ledger with TracedInts for sizes: groups, each with the sizes of a step.

    `made` are axes for products of others, N for K · G. `order`: axes in the order of a product.
    """

    groups: tuple[tuple[Group, Axes], ...]
    made: Mapping[Factor, tuple[str, ...]]
    legend: Mapping[str, Axis]
    kinds: Mapping[str, str]
    order: Sequence[str]

    def products(self, *, masked: bool, train: bool) -> Iterator[Entry]:
        """FLOPs of every matmul: forward, or, in a training step, 3 × as many with both gradients."""
        for group, at in self.groups:
            names = {**group.names, "S": _name(at.get(VISIBLE_KEYS), "S")}
            for product in Ledger((group,)).products(at, masked=masked):
                line, count = product.line, product.forward
                more = [renamed(gradient.spec, names) for gradient in line.backward()] if train else []
                if train:
                    count = TracedInt(1 + len(more), [_times(1 + len(more), "products")]) * count
                spec = renamed(line.spec, names)
                met = _active_weights(line, product.axes) * int(product.count)
                yield Entry(line.path, spec, count.factors, int(count), group.kind, line, tuple(more), met)

    def tensors(self, how: Storage | None = None) -> Iterator[Entry]:
        """Parameters of every stored tensor, or its bytes if `how` is given."""
        names = {id(group.axes): group.names for group, _ in self.groups}
        for tensor in Ledger(tuple(group for group, _ in self.groups)).tensors():
            count = tensor.count * (tensor.elements if how is None else how.bytes(tensor.stored))
            factors = derivation.factors_of(count)
            kind = next((self.kinds[factor.axis] for factor in factors if factor.axis in self.kinds), "")
            spec = renamed(" ".join(tensor.parameter.axes), names[id(tensor.axes)])
            yield Entry(tensor.path, spec, factors, int(count), kind)

    def states(self, width: Width) -> Iterator[Entry]:
        """Bytes cached between steps."""
        for group, at in self.groups:
            specs = {line.path: line.spec for line in group.lines if isinstance(line, State)}
            for path, count in Ledger((group,)).state_bytes(at, width).items():
                spec = renamed(specs[path], {**group.names, "S": _name(at.get(CACHED_KEYS), "S")})
                yield Entry(path, spec, derivation.factors_of(count), int(count), group.kind)

    def step(self, entries: Sequence[Entry], alone: bool, unit: str) -> Step:
        """Step for entries that differ only in their layers. `alone`: no other step has the same path."""
        first = entries[0]
        factors = derivation.joined(_with_unit(_merged_factors(entries), unit), self.made)
        kind = " and ".join(dict.fromkeys(entry.kind for entry in entries if entry.kind))
        name = paths.short(first.path) if alone or not kind else f"{paths.short(first.path)} ({kind})"
        result = sum(entry.value for entry in entries)
        written = derivation.in_axes(factors, self.order), derivation.in_numbers(factors, self.order)
        return Step(name, first.path, first.spec, *written, result, first.more)

    def steps(self, entries: Iterable[Entry], unit: str) -> list[Step]:
        """Steps in the order of lines; kinds of layers with equal counts are one step."""
        found: dict[str, dict[object, list[Entry]]] = {}
        for entry in entries:
            factors = tuple(factor for factor in entry.factors if not factor.blocks)
            found.setdefault(entry.path, {}).setdefault((entry.spec, factors), []).append(entry)
        return [self.step(alike, len(of_path) == 1, unit) for of_path in found.values() for alike in of_path.values()]

    def axes_of(self, steps: Iterable[Step]) -> tuple[Axis, ...]:
        """All axes in the steps and in the meanings of these axes."""
        text = " ".join(" ".join((step.spec, *step.more, step.symbols)) for step in steps)
        used, pending = set[str](), {*AXIS.findall(text)}
        while pending:
            used |= pending
            meanings = " ".join(self.legend[name].meaning for name in pending)
            pending = {name for name in meanings.replace(",", " ").replace("(", " ").split() if name in self.legend}
            pending -= used
        return tuple(axis for name, axis in self.legend.items() if name in used)


NUMBERED = {WINDOW: (WINDOW, VISIBLE_KEYS, CACHED_KEYS), CHUNK: (CHUNKS,), HALF: (HALVES, OVERLAPPING)}
"""Axes of windows, chunks and half windows → axes that get a number, if layers have several sizes."""


def derivation_model(ledger: Ledger, shape: Transformer, work: Workload | None) -> DerivationModel:
    """The model with TracedInts for all sizes, at a workload if given. The mode of latent attention must not be
    `auto`."""
    at = {} if work is None else work.axes()
    explained, stacks = shape.declared_axes(), layer_axes(shape)
    meanings = axis_meanings(shape)
    several = {axis: list(dict.fromkeys(g.axes[axis] for g in ledger.groups if axis in g.axes)) for axis in NUMBERED}
    legend: dict[str, Axis] = {}

    def named(name: str, value: int, meaning: str) -> TracedInt:
        legend[name] = Axis(name, int(value), meaning)
        return derivation.axis(name, value)

    step = {name: named(name, value, meanings[name]) for name, value in at.items()}
    numbers, groups = iter(stacks), []
    for group in ledger.groups:
        names = _numbered_names(group, several)
        at_step = {**step, **(_computed_in_step(group, at, names, meanings, named) if at else {})}
        axes = {}
        for axis, value in group.axes.items():
            name = names.get(axis, axis)
            axes[axis] = named(name, value, meanings[axis if axis == WINDOW else name])
        count = _layer_count(group, numbers, legend, meanings)
        groups.append((replace(group, axes=axes, count=count, names=names), at_step))
    products: dict[Factor, tuple[str, ...]] = {}
    for name, declared in explained.items():
        parts = tuple((declared.made or "").split(" · "))
        if name in legend and len(parts) > 1 and all(map(AXIS.fullmatch, parts)):
            value = legend[name].value
            products[Factor(name, f"{value:,}", value, name)] = parts
    kinds = dict(zip(stacks, shape.kinds(), strict=True))
    ranked = sorted(legend, key=lambda name: (name not in at, name not in stacks))
    base = {name: name.rstrip("0123456789") for name in legend}
    base |= {name: axis.part_axis for name, axis in explained.items()}
    order = in_product([*at, *stacks, *shape.axis_sizes(), *explained, *legend], base)
    return DerivationModel(tuple(groups), products, {name: legend[name] for name in ranked}, kinds, order)


def _numbered_names(group: Group, several: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Names of a group's axes, with a number where groups have several sizes."""
    names = dict(group.names)
    for axis, sizes in several.items():
        if axis in group.axes and len(sizes) > 1:
            number = sizes.index(group.axes[axis]) + 1
            names |= {each: f"{each}{number}" for each in NUMBERED[axis]}
    return names


def _computed_in_step(
    group: Group,
    at: Axes,
    names: Mapping[str, str],
    meanings: Mapping[str, str],
    named: Callable[[str, int, str], TracedInt],
) -> dict[str, TracedInt]:
    """Sizes that the ledger computes for a group in a step."""
    bound, sizes = group.bound(at), dict[str, TracedInt]()

    def add(axis: str, value: int, meaning: str) -> None:
        sizes[axis] = named(names.get(axis, axis), value, meaning)

    if WINDOW in group.axes:
        add(VISIBLE_KEYS, bound["S"], renamed(meanings[VISIBLE_KEYS], names))
        add(CACHED_KEYS, group.bound(at, cached=True)["S"], renamed(meanings[CACHED_KEYS], names))
    if CHUNK in group.axes:
        for axis in (CHUNKS, ONE_BY_ONE):
            add(axis, bound[axis], renamed(meanings[axis], names))
    if FRONT in group.axes:
        add(PATCHES, bound[PATCHES], renamed(meanings[PATCHES], {FRONT: str(group.axes[FRONT])}))
    for axis in _compressed_axes(group):
        add(axis, bound[axis], meanings[axis])
    if LONGEST in group.axes:
        of_tokens = names if group.reads else {**names, "I": "T"}
        for axis in OF_WINDOWS:
            if axis in bound:
                add(axis, bound[axis], renamed(meanings[axis], of_tokens))
    for axis, of_group in SHARES.items():
        if of_group in group.axes:
            meaning = meanings[axis]
            if FRONT in group.axes:
                meaning = meaning.replace("T /", f"(T − {group.axes[FRONT]}) /")
            add(axis, bound[axis], meaning)
    return sizes


def _compressed_axes(group: Group) -> list[str]:
    kinds = [kind for kind, rate in RATES.items() if rate in group.axes]
    return [named[kind] for kind in kinds for named in COMPRESSED.values() if kind in named]


def _layer_count(group: Group, stacks: Iterator[str], legend: dict[str, Axis], meanings: Mapping[str, str]) -> int:
    """Number of layers of a group, by its axis; for MTP heads, which have no axis, in words."""
    stack = next((paths.parse(line.path).stack for line in group.lines), "")
    if stack == paths.BLOCKS:
        name = next(stacks)
        legend[name] = Axis(name, group.count, meanings[name])
        return derivation.blocks(name, group.count, "layer" if group.count == 1 else "layers")
    return TracedInt(group.count, [_times(group.count, "MTP heads")]) if group.count != 1 else 1


def _active_weights(line: Matmul, axes: Axes) -> int:
    """Elements of a matmul's weight that are active for one token: of experts only the top-k."""
    weight = line.weight_axes()
    if weight is None:
        return 0
    return int(size(axes, weight) * (axes[ACTIVE] if line.expert_axis else 1))


def _times(count: int, word: str) -> Factor:
    return Factor(str(count), f"{count:,} {word}", count)


def _name(size: object, otherwise: str) -> str:
    """Axis of a TracedInt; `otherwise` for other sizes."""
    return size.factors[0].axis if isinstance(size, TracedInt) else otherwise


def _merged_factors(entries: Sequence[Entry]) -> list[Factor]:
    """Factors of entries that differ only in their layers, with the numbers of layers added."""
    each = [next((factor for factor in entry.factors if factor.blocks), None) for entry in entries]
    rest = [factor for factor in entries[0].factors if not factor.blocks]
    blocks = [factor for factor in each if factor is not None]
    if not blocks and len(entries) > 1:  # several kinds, each with one tensor for all its layers
        return [*rest, _times(len(entries), "sets")._replace(blocks=True)]
    if len(blocks) < 2:
        return [*rest, *blocks]
    value = sum(factor.value for factor in blocks)
    names, numbers = " + ".join(f.symbols for f in blocks), " + ".join(f"{f.value:,}" for f in blocks)
    return [*rest, Factor(f"({names})", f"({numbers}) layers", value, blocks=True)]


def _with_unit(factors: list[Factor], unit: str) -> list[Factor]:
    """Factors with the word `bytes` at the bytes per element, if the unit is bytes."""
    if unit != "bytes":
        return factors
    for place, factor in enumerate(factors):
        if factor.symbols.isdigit() and not factor.blocks:
            return [*factors[:place], factor._replace(numbers=f"{factor.numbers} bytes"), *factors[place + 1 :]]
    plain = all(factor.axis or factor.blocks for factor in factors)
    return [Factor("1", "1 byte", 1), *factors] if plain else factors
