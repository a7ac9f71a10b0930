"""The ledger: a forward pass as groups of lines, and all totals.

The ledger has only leaves. Subtotals are computed, so nothing is counted twice. This module knows axes, not
transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm, prod
from typing import Any, TypeAlias

from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.einsum import (
    Axes,
    Size,
    SpecError,
    chunks,
    divided,
    one_by_one,
    rounded_down,
    rounded_up,
    seen,
    shared,
    smaller,
)
from tfacct.ledger.evaluated import Product, Tensor, cached_bytes, same_sizes
from tfacct.ledger.known import Known, Lines
from tfacct.ledger.lines import (
    ACTIVE,
    CHUNK,
    FRONT,
    HALF,
    LONGEST,
    RATES,
    SHARES,
    WINDOW,
    Line,
    LineT,
    Matmul,
    Parameter,
    Pointwise,
    State,
)
from tfacct.ledger.storage import Storage, Width
from tfacct.ledger.workload import CHUNKS, COMPRESSED, HALVES, ONE_BY_ONE, OVERLAPPING, PADDED, PATCHES, POSITIONS

VISIBLE_KEYS, CACHED_KEYS = "Sw", "Sk"
"""Axes of the keys that a sliding-window layer sees in a step, and of those in its KV cache after the step."""


@record
class Group:
    """Lines with the sizes of their axes and the layers that have them.

    `count` is the number of layers and `numbers` their numbers; embeddings and head have count 1 and no numbers. `*` in
    a path is the layer number. `kind` names the layers if the model has several kinds. `names` maps axes to the model's
    names, if another group has the same axis with another size. With `once`, all layers share one set of tensors; else
    they share the tensors whose paths begin with a name in `shared`.
    """

    lines: tuple[Line, ...]
    axes: Axes
    count: Size = 1
    numbers: Sequence[int] = ()
    kind: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.lines, Lines):
            object.__setattr__(self, "lines", Lines(self.lines))

    @property
    def cached_lines(self) -> Lines:
        """The lines with their cache of derived values."""
        assert isinstance(self.lines, Lines)
        return self.lines

    def named(self) -> dict[str, Size]:
        """Sizes by the model's names of the axes."""
        return {self.names.get(axis, axis): size for axis, size in self.axes.items()}

    def bound(self, at: Axes, *, cached: bool = False) -> Axes:
        """Sizes of all axes in a step, including those of the workload (`at`).

        With a sliding window W, S is the number of keys that the new tokens see: min(S, T + W − 1). With `cached`,
        it is the number of keys in the KV cache after the step: min(S, W). `at` may give them as VISIBLE_KEYS and
        CACHED_KEYS; with symbols for them, formulas have no `min`.

        Also computed, unless `at` gives them: CHUNKS and ONE_BY_ONE for recurrences in chunks, PATCHES for patches
        after learned tokens, merged patches, compressed keys, and tokens padded to overlapping windows.

        Raises UsageError if patches are left over after merging.
        """
        axes = {**self.axes, **at}
        if CHUNK in self.axes and CHUNKS not in at:
            axes[CHUNKS] = chunks(at["T"], at["S"], self.axes[CHUNK])
            axes[ONE_BY_ONE] = one_by_one(at["T"], at["S"])
        if FRONT in self.axes and PATCHES not in at:
            axes[PATCHES] = at["T"] - self.axes[FRONT]
        for kind, rate in RATES.items():
            if rate in self.axes and COMPRESSED["entries"][kind] not in at:
                axes |= _compressed(kind, at, self.axes[rate])
        for share, size in SHARES.items():
            if size in self.axes and share not in at:
                axes[share] = shared(at["T"], self.axes[size], self.axes.get(FRONT, 0))
        if LONGEST in self.axes:
            axes |= self._overlapping(at)
        if WINDOW in self.axes:
            window = self.axes[WINDOW]
            axes[POSITIONS] = at["S"]
            if cached:
                axes["S"] = at[CACHED_KEYS] if CACHED_KEYS in at else smaller(at["S"], window)
            else:
                axes["S"] = at[VISIBLE_KEYS] if VISIBLE_KEYS in at else seen(at["T"], at["S"], window)
        return axes

    def _overlapping(self, at: Axes) -> dict[str, Size]:
        """Sizes for overlapping windows: padded tokens, half windows, and windows (one fewer than halves)."""
        read, longest = at["I" if self.reads else "T"], self.axes[LONGEST]
        padded = at[PADDED] if PADDED in at else rounded_up(read, longest) * longest
        if HALF not in self.axes:
            return {PADDED: padded}
        mark = self.names.get(HALF, HALF).removeprefix(HALF)  # if layers have windows of different sizes
        marked_halves, marked_windows = f"{HALVES}{mark}", f"{OVERLAPPING}{mark}"
        halves = at[marked_halves] if marked_halves in at else divided(padded, self.axes[HALF])
        windows = at[marked_windows] if marked_windows in at else halves - smaller(halves, 1)
        return {PADDED: padded, HALVES: halves, OVERLAPPING: windows}

    @property
    def reads(self) -> bool:
        """True for lines of an encoder that a decoder reads: its tokens are the source."""
        return any(paths.parse(line.path).side == paths.ENCODER for line in self.lines)

    def sized(self) -> list[tuple[Parameter, tuple[Size, ...], Size, Size]]:
        """Parameters with shape, elements, and elements active for one token."""

        def found() -> Iterator[tuple[Parameter, tuple[Size, ...], Size, Size]]:
            for parameter in self.cached_lines.parameters:
                shape = tuple([self.axes[axis] for axis in parameter.axes])
                elements = prod(shape)
                active_experts = 0 if parameter.idle else self.axes.get(ACTIVE, 0)
                active = divided(elements, shape[0]) * active_experts if parameter.is_expert else elements
                yield parameter, shape, elements, active

        kinds = frozenset(map(type, self.axes.values()))  # a TracedInt equals a plain int
        return self.cached_lines.once((Group.sized, kinds, *self.axes.items()), lambda: list(found()))

    def places(self, path: str, unfolded: bool) -> Iterator[tuple[str, Size]]:
        """Paths and counts of a line: one path for all layers or, `unfolded`, one for each layer."""
        if unfolded and self.numbers:
            for number in self.numbers:
                yield paths.numbered(path, number), 1
        else:
            yield path, self.count

    def stored(self, path: str, unfolded: bool) -> Iterator[tuple[str, Size]]:
        """Paths and counts of a tensor, like those of its line; a shared tensor has only the first layer's path."""
        places = self.places(path, unfolded)
        if not self.once and not (self.shared and paths.among(path, self.shared)):
            return places
        first, _ = next(places)
        return iter([(first, 1)])


def _compressed(kind: str, at: Axes, rate: Size) -> dict[str, Size]:
    """Sizes for compressed tokens in a step."""
    entries, before = rounded_down(at["S"], rate), rounded_down(at["S"] - at["T"], rate)
    sizes = {
        "entries": entries,
        "new": entries - before,
        "waiting": at["S"] - entries * rate,
        "any": smaller(entries, 1),
    }
    return {named[kind]: sizes[what] for what, named in COMPRESSED.items() if kind in named}


Keep: TypeAlias = Callable[[str, Matmul], bool]
"""Selects matmuls by path and line."""


def every_matmul(_path: str, _line: Matmul) -> bool:
    """Selects every matmul."""
    return True


@dataclass(frozen=True)
class Ledger(Known):
    """All lines of a model, and the counts derived from them.

    Counts are dicts by path, in FLOPs or elements. `at` has the sizes of a workload:

    >>> up = Matmul("blocks.*.mlp.up_proj", "B T D, D F -> B T F")
    >>> cache = State("blocks.*.attn.k_cache", "B S K H")
    >>> sizes = {"D": 4, "F": 16, "K": 2, "H": 5}
    >>> ledger = Ledger((Group((up, cache), sizes, count=3, numbers=range(3)),))
    >>> at = {"B": 1, "T": 7, "S": 9}

    `blocks.*` is the sum over all layers, here 3 × 2 · 7 · 4 · 16:

    >>> ledger.flops(at)
    {'blocks.*.mlp.up_proj': 2688}

    `unfolded` gives each layer its own path:

    >>> list(ledger.flops(at, unfolded=True))
    ['blocks.0.mlp.up_proj', 'blocks.1.mlp.up_proj', 'blocks.2.mlp.up_proj']

    Parameters need no workload:

    >>> ledger.parameters()
    {'blocks.*.mlp.up_proj.weight': 192}

    States are cached for the next step, here 3 × 9 · 2 · 5 elements:

    >>> ledger.states(at)
    {'blocks.*.attn.k_cache': 270}

    `instead` is an alternative with the same weights and state but other matmuls. A step uses whichever takes fewer
    FLOPs, and `self` if both take the same.
    """

    groups: tuple[Group, ...]
    instead: Ledger | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Ledger, (self.groups, self.instead)

    @cached_property
    def ways(self) -> tuple[Ledger, ...]:
        """This ledger and its alternatives, from which a step chooses."""
        return (self,) if self.instead is None else (Ledger(self.groups), *self.instead.ways)

    def settled(self, at: Axes, *, masked: bool = False) -> Ledger:
        """The alternative with the fewest FLOPs in a step, for all query–key pairs or only the `masked` ones.

        With alternatives, the sizes must be ints: arrays and symbols cannot be compared as a whole.
        """
        if self.instead is None:
            return self
        return min(self.ways, key=lambda way: way.total_flops(at, masked=masked))

    @property
    def has_cache(self) -> bool:
        """True if anything is cached for the next step."""
        return any(isinstance(line, State) for group in self.groups for line in group.lines)

    @cached_property
    def together(self) -> int:
        """Number that the tokens of a step must be a multiple of, because patches are merged; else 1."""
        return lcm(*(group.axes[size] for group in self.groups for size in SHARES.values() if size in group.axes))

    @cached_property
    def leaps(self) -> bool:
        """True if counts grow in steps with the context: tokens are padded to chunks or windows, or compressed."""
        lengths = (CHUNK, *RATES.values())
        axes_of_groups = (group.axes for group in self.groups if not group.reads)
        return any(LONGEST in axes or any(length in axes for length in lengths) for axes in axes_of_groups)

    @cached_property
    def period(self) -> int:
        """Period, in tokens, of the number of tokens that wait to be compressed; 1 without compression."""
        return lcm(*self.rates)

    @cached_property
    def rates(self) -> set[int]:
        """Compression rates: tokens per compressed key."""
        return {group.axes[rate] for group in self.groups for rate in RATES.values() if rate in group.axes}

    def fullest(self, context: int) -> set[int]:
        """Candidates, up to this context, for the context with the largest cache.

        A cache may shrink when a compressed key is complete, because its waiting tokens can take more bytes.
        """
        first = max(1, context - self.period + 1)
        return {context} | {n - 1 for rate in self.rates for n in range((first // rate + 1) * rate, context + 1, rate)}

    @cached_property
    def learned_tokens(self) -> int:
        """Number of learned tokens among the patches, which are not merged."""
        return max((group.axes.get(FRONT, 0) for group in self.groups if {*SHARES.values()} & {*group.axes}), default=0)

    @cached_property
    def experts(self) -> bool:
        """True if a layer has experts."""
        return any(group.cached_lines.has_experts for group in self.groups)

    @cached_property
    def weights(self) -> list[tuple[Group, dict[str, Parameter]]]:
        """Groups with their weights by path."""
        return [(group, {one.path: one for one in group.cached_lines.parameters}) for group in self.groups]

    def products(self, at: Axes, *, masked: bool = False) -> list[Product]:
        """Every Matmul evaluated for a step: m × k × n, repetitions, forward and backward FLOPs."""
        found = []
        for group in self.settled(at, masked=masked).groups:
            axes = group.bound(at)
            for line in group.lines:
                if not isinstance(line, Matmul):
                    continue
                dims = line.dims(axes)
                backward = sum(gradient.flops(axes, masked) for gradient in line.backward())
                found.append(
                    Product(
                        path=line.path,
                        numbers=group.numbers,
                        kind=group.kind,
                        line=line,
                        axes=axes,
                        count=group.count,
                        dims=dims._replace(times=group.count * dims.times),
                        forward=group.count * line.flops(axes, masked),
                        backward=group.count * backward,
                        experts=self.experts,
                        names=group.names,
                    )
                )
        return found

    def flops(self, at: Axes, *, masked: bool = False, unfolded: bool = False) -> dict[str, Size]:
        """FLOPs of one forward pass by path."""
        each = self.settled(at, masked=masked)._each(Matmul, at, unfolded)
        return _summed((path, count * line.flops(axes, masked)) for path, line, axes, count in each)

    def total_flops(self, at: Axes, *, masked: bool = False, backward: bool = False, keep: Keep = every_matmul) -> Size:
        """FLOPs of a forward or a backward pass, of all matmuls or those selected by `keep`.

        Ints are multiplied and added first, so that arrays need few operations and few roundings.
        """
        sums: dict[tuple[int, ...], tuple[int, list[Size]]] = {}
        for path, line, axes, count in self.settled(at, masked=masked)._each(Matmul, at):
            if not keep(path, line):
                continue
            for product in line.backward() if backward else (line,):
                constant, others = 1, []
                for factor in (count, *product.factors(axes, masked)):
                    if isinstance(factor, int):
                        constant *= factor
                    else:
                        others.append(factor)
                key = tuple(sorted(map(id, others)))
                before, _ = sums.get(key, (0, others))
                sums[key] = before + constant, others  # keeps the objects alive, so that ids stay unique
        return sum(prod(others, start=constant) for constant, others in sums.values())

    def cost(self, at: Axes, weights: Storage, activations: Width) -> Cost:
        """FLOPs of one forward pass, and the bytes that its matmuls read and write."""
        return sum((product.cost(weights, activations) for product in self.products(at)), Cost())

    def tensors(self, *, unfolded: bool = False) -> list[Tensor]:
        """All stored tensors; a weight used by two lines is one tensor.

        Raises SpecError if two lines use a weight with different shapes.
        """
        return self._tensors(unfolded=True) if unfolded else list(self._folded)

    @cached_property
    def _folded(self) -> list[Tensor]:
        """Tensors of all layers together; cached, because they do not depend on the workload."""
        return self._tensors(unfolded=False)

    def _tensors(self, unfolded: bool) -> list[Tensor]:
        found: dict[tuple[str, int], Tensor] = {}
        experts = self.experts
        for index, group in enumerate(self.groups):
            for parameter, shape, elements, active in group.sized():
                for path, count in group.stored(parameter.path, unfolded):
                    tensor = Tensor(path, shape, elements, active, count, parameter, group.axes, experts)
                    owner = index if paths.repeated(path) else -1  # layers of another kind have other tensors
                    known = found.setdefault((path, owner), tensor)
                    if known is not tensor and not same_sizes(known.shape, shape):
                        raise SpecError(f"{path} has two shapes: {known.shape} and {shape}")
        return list(found.values())

    def parameters(self, *, unfolded: bool = False) -> dict[str, Size]:
        """Number of stored elements by path."""
        return _summed((tensor.path, tensor.count * tensor.elements) for tensor in self.tensors(unfolded=unfolded))

    def active_parameters(self) -> dict[str, Size]:
        """Number of elements active for one token by path: of experts only the top-k."""
        return _summed((tensor.path, tensor.count * tensor.active) for tensor in self.tensors())

    def weight_bytes(self, weights: Storage) -> dict[str, Size]:
        """Bytes of the weights as stored, by path; every tensor is rounded up to whole bytes."""
        tensors = self.tensors(unfolded=weights.by_block)
        return _summed((paths.starred(tensor.path), tensor.count * weights.bytes(tensor.stored)) for tensor in tensors)

    def states(self, at: Axes, *, unfolded: bool = False) -> dict[str, Size]:
        """Number of elements in the KV cache and recurrent states after the step `at`, by path."""
        each = self._each(State, at, unfolded)
        return _summed((path, count * line.elements(axes)) for path, line, axes, count in each)

    def state_bytes(self, at: Axes, cache: Width) -> dict[str, Size]:
        """Bytes of the KV cache and recurrent states, by path; every tensor is rounded up to whole bytes."""
        each = self._each(State, at)
        return _summed((path, count * cached_bytes(line, axes, cache)) for path, line, axes, count in each)

    def pointwise(self, at: Axes, *, unfolded: bool = False) -> dict[str, Size]:
        """Number of result elements of pointwise operations by path."""
        each = self._each(Pointwise, at, unfolded)
        return _summed((path, count * line.elements(axes)) for path, line, axes, count in each)

    def _each(self, kind: type[LineT], at: Axes, unfolded: bool = False) -> Iterator[tuple[str, LineT, Axes, Size]]:
        """Lines of one kind with path, sizes of axes, and number of layers."""
        for group in self.groups:
            axes = group.bound(at, cached=kind is State)
            for line in group.lines:
                if isinstance(line, kind):
                    for path, count in group.places(line.path, unfolded):
                        yield path, line, axes, count


def _summed(counts: Iterable[tuple[str, Size]]) -> dict[str, Size]:
    """Counts by path, summed over groups of layers with the same path."""
    total: dict[str, Size] = {}
    for path, count in counts:
        total[path] = total[path] + count if path in total else count
    return total
