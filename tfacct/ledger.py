"""The ledger: a forward pass as groups of lines, and every total that follows from them.

Leaves only: every subtotal is computed, so nothing is counted twice. This room knows axes, not transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod
from typing import NamedTuple

from tfacct.lines import ACTIVE, WINDOW, Dims, Line, LineT, Matmul, Pointwise, State
from tfacct.notation import Axes, Size, SpecError, divided, seen, smaller, whole_bytes

SEEN, KEPT = "Sw", "Sk"
"""Keys that a windowed block sees in a step, and those that it keeps: letters of formulas."""


@dataclass(frozen=True, slots=True)
class Group:
    """Lines, the sizes of their own axes, and the blocks they stand for.

    The embeddings and the head stand alone: count 1 and no numbers. `*` in a path stands for the block's number.
    `kind` names the blocks where a model has several kinds.
    """

    lines: tuple[Line, ...]
    axes: Axes
    count: Size = 1
    numbers: Sequence[int] = ()
    kind: str = ""

    def bound(self, at: Axes, *, kept: bool = False) -> Axes:
        """The sizes of all axes in a step. In a window S are the keys that the new tokens see, or, `kept`, those that
        stay for the next step.

        `at` may bind both by itself, as SEEN and KEPT: a symbol for each keeps a formula free of `min`.
        """
        axes = {**self.axes, **at}
        if WINDOW in self.axes:
            window = self.axes[WINDOW]
            if kept:
                axes["S"] = at[KEPT] if KEPT in at else smaller(at["S"], window)
            else:
                axes["S"] = at[SEEN] if SEEN in at else seen(at["T"], at["S"], window)
        return axes

    def places(self, path: str, unfolded: bool) -> Iterator[tuple[str, Size]]:
        """Where `path` stands and how often: once for all blocks, or, unfolded, once in each."""
        if unfolded and self.numbers:
            for number in self.numbers:
                yield path.replace("*", str(number)), 1
        else:
            yield path, self.count


class Product(NamedTuple):
    """One line of products, evaluated for a group of blocks: FLOPs of all `dims.times` runs, forward and backward.

    `axes` are the sizes of its letters, `count` the blocks it stands for, of the `kind` where there are several.
    """

    path: str
    numbers: Sequence[int]
    kind: str
    line: Matmul
    axes: Axes
    count: Size
    dims: Dims
    forward: Size
    backward: Size

    def moved(self, weights: int, activations: int) -> tuple[Size, Size, Size]:
        """Bytes of the left operand, the right operand and the result in all blocks, each rounded up in each block.

        An unfused kernel reads the operands and writes the result, each once.
        """
        left, right, out = (whole_bytes(bits, 1) for bits in self.line.bits(self.axes, weights, activations))
        return self.count * left, self.count * right, self.count * out


class Tensor(NamedTuple):
    """One parameter, evaluated for a group of blocks: `count` tensors of `shape`, `elements` numbers each.

    A token meets `active` of these numbers: of a bank of experts those of the experts it is sent to.
    """

    path: str
    shape: tuple[Size, ...]
    elements: Size
    active: Size
    count: Size


def _same_sizes(some: tuple[Size, ...], others: tuple[Size, ...]) -> bool:
    """Whether two shapes have the same sizes, in any order: a tied head reads its table the other way round."""
    rest = list(others)
    for size_ in some:
        index = next((i for i, other in enumerate(rest) if _same_size(size_, other)), None)
        if index is None:
            return bool(hasattr(size_, "free_symbols")) and sorted(map(str, some)) == sorted(map(str, others))
        rest.pop(index)
    return not rest


def _same_size(one: Size, other: Size) -> bool:
    """Whether two sizes are the same number or the same array; an array is not compared element by element."""
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


def _all(_path: str, _line: Matmul) -> bool:
    return True


@dataclass(frozen=True)
class Ledger:
    """All lines of a model. Holds leaves only: every subtotal is computed, so nothing is counted twice.

    `at` is what the workload binds (`Workload.axes()`). Counts are dicts by path, where `blocks.*` stands for
    all blocks together; `unfolded` gives each block its own number.
    """

    groups: tuple[Group, ...]

    @property
    def keeps(self) -> bool:
        """Whether anything stays for a next step."""
        return any(isinstance(line, State) for group in self.groups for line in group.lines)

    def products(self, at: Axes, *, masked: bool = False) -> list[Product]:
        """Every product with its m × k × n, how often it runs, and its FLOPs."""
        found = []
        for group in self.groups:
            axes = group.bound(at)
            for line in (line for line in group.lines if isinstance(line, Matmul)):
                dims, flops = line.dims(axes), line.flops(axes, masked)
                backward = sum(gradient.flops(axes, masked) for gradient in line.backward())
                dims = dims._replace(times=group.count * dims.times)
                each = (line.path, group.numbers, group.kind, line, axes, group.count, dims)
                found.append(Product(*each, group.count * flops, group.count * backward))
        return found

    def flops(self, at: Axes, *, masked: bool = False, unfolded: bool = False) -> dict[str, Size]:
        """FLOPs of one forward pass, by product."""
        each = self._each(Matmul, at, unfolded)
        return _summed((path, count * line.flops(axes, masked)) for path, line, axes, count in each)

    def total_flops(
        self, at: Axes, *, masked: bool = False, backward: bool = False, keep: Callable[[str, Matmul], bool] = _all
    ) -> Size:
        """FLOPs of a forward or a backward pass: of all products, or of those that `keep` holds for.

        Ints are multiplied and added before anything else is, so that arrays meet few operations and few roundings.
        """
        whole: dict[tuple[int, ...], tuple[int, list[Size]]] = {}
        for path, line, axes, count in self._each(Matmul, at):
            if not keep(path, line):
                continue
            for product in line.backward() if backward else (line,):
                known, others = 1, []
                for factor in (count, *product.factors(axes, masked)):
                    if isinstance(factor, int):
                        known *= factor
                    else:
                        others.append(factor)
                alike = tuple(sorted(map(id, others)))
                before, _ = whole.get(alike, (0, others))
                whole[alike] = before + known, others  # which keeps them alive, and their ids theirs
        return sum(prod(others, start=known) for known, others in whole.values())

    def tensors(self, *, unfolded: bool = False) -> list[Tensor]:
        """Every stored parameter. A weight that two lines use is one tensor, so it stands once."""
        return self._tensors(unfolded=True) if unfolded else list(self._folded)

    @cached_property
    def _folded(self) -> list[Tensor]:
        """The tensors of all blocks together: they depend on no workload, and most questions ask for them."""
        return self._tensors(unfolded=False)

    def _tensors(self, unfolded: bool) -> list[Tensor]:
        found: dict[tuple[str, int], Tensor] = {}
        for index, group in enumerate(self.groups):
            for parameter in chain.from_iterable(line.parameters() for line in group.lines):
                shape = tuple([group.axes[axis] for axis in parameter.axes])
                elements = prod(shape)
                active = divided(elements, shape[0]) * group.axes[ACTIVE] if parameter.bank else elements
                for path, count in group.places(parameter.path, unfolded):
                    tensor = Tensor(path, shape, elements, active, count)
                    owner = index if "*" in path else -1  # blocks of another kind own other tensors
                    known = found.setdefault((path, owner), tensor)
                    if known is not tensor and not _same_sizes(known.shape, shape):
                        raise SpecError(f"{path} is read in two shapes: {known.shape} and {shape}")
        return list(found.values())

    def parameters(self, *, unfolded: bool = False) -> dict[str, Size]:
        """Stored elements, by parameter."""
        return _summed((tensor.path, tensor.count * tensor.elements) for tensor in self.tensors(unfolded=unfolded))

    def active_parameters(self) -> dict[str, Size]:
        """Elements that one token meets, by parameter: all, but of each bank only the experts it is sent to."""
        return _summed((tensor.path, tensor.count * tensor.active) for tensor in self.tensors())

    def weight_bytes(self, width: int) -> dict[str, Size]:
        """Bytes at `width` bits per element, by parameter; every tensor rounded up to whole bytes."""
        return _summed((t.path, t.count * whole_bytes(t.elements, width)) for t in self.tensors())

    def states(self, at: Axes, *, unfolded: bool = False) -> dict[str, Size]:
        """Elements kept between steps, by state."""
        each = self._each(State, at, unfolded)
        return _summed((path, count * line.elements(axes)) for path, line, axes, count in each)

    def state_bytes(self, at: Axes, width: int) -> dict[str, Size]:
        """Bytes kept between steps at `width` bits per element, by state; every tensor rounded up."""
        each = self._each(State, at)
        return _summed((path, count * whole_bytes(line.elements(axes), width)) for path, line, axes, count in each)

    def pointwise(self, at: Axes, *, unfolded: bool = False) -> dict[str, Size]:
        """Elements of the results of all work that is no product, by line."""
        each = self._each(Pointwise, at, unfolded)
        return _summed((path, count * line.elements(axes)) for path, line, axes, count in each)

    def _each(self, kind: type[LineT], at: Axes, unfolded: bool = False) -> Iterator[tuple[str, LineT, Axes, Size]]:
        """Each line of one kind: its path, itself, the sizes of its axes, and how often it stands."""
        for group in self.groups:
            axes = group.bound(at, kept=kind is State)
            for line in group.lines:
                if isinstance(line, kind):
                    for path, count in group.places(line.path, unfolded):
                        yield path, line, axes, count


def _summed(counts: Iterable[tuple[str, Size]]) -> dict[str, Size]:
    """A dict by path; groups of blocks that share a path are added up."""
    total: dict[str, Size] = {}
    for path, count in counts:
        total[path] = total[path] + count if path in total else count
    return total
