"""The ledger: a forward pass as lines of data, and everything that follows from a line.

A product is written as an einsum over named axes, `B T D, D N H -> B T N H`. Its FLOPs, its parameters,
its m × k × n and the bits it moves are all read off those letters, so none of them is ever written twice.
This room knows axes, not transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, TypeVar

from tfacct import workload
from tfacct.notation import (
    Axes,
    Einsum,
    Letters,
    Mask,
    Size,
    SpecError,
    einsum,
    letters,
    pairs,
    size,
    stored,
    whole_bytes,
)

FLOPS_PER_MULTIPLY_ADD = 2


@dataclass(frozen=True, slots=True)
class Parameter:
    """One stored tensor, by the name it has in the model: `blocks.*.attn.q_proj.weight`, axes `D N H`."""

    path: str
    axes: Letters


@dataclass(frozen=True, slots=True)
class Dims:
    """A product as the matrix multiplications that run: `times` × (m × k by k × n)."""

    m: Size
    k: Size
    n: Size
    times: Size


def _is_weight(operand: Letters) -> bool:
    """Whether an operand is stored, not computed: it carries no axis of the workload."""
    return not any(axis in workload.AXES for axis in operand)


@dataclass(frozen=True, slots=True)
class Matmul:
    """A product. `weight` names the module whose weight it reads when that is not its own (a tied head);
    `bias` adds one number per right-only axis; `mask` says which pairs count when only those are asked for.
    """

    path: str
    spec: str
    weight: str | None = None
    bias: bool = False
    mask: Mask = "full"

    def __post_init__(self) -> None:
        einsum(self.spec)
        if self.weight is not None and self.weight_axes() is None:
            raise SpecError(f"{self.path}: {self.spec!r} has no operand that could be the weight of {self.weight}")
        if self.mask != "full" and not {"T", "S"} <= set(self.einsum.every):
            raise SpecError(f"{self.spec!r} is masked but has no query–key pairs T S")

    @property
    def einsum(self) -> Einsum:
        """The parsed spec."""
        return einsum(self.spec)

    def weight_axes(self) -> Letters | None:
        """The axes of the operand that carries no axis of the workload; None where both are activations."""
        for operand in (self.einsum.right, self.einsum.left):
            if _is_weight(operand):
                return operand
        return None

    def factors(self, axes: Axes, masked: bool = False) -> list[Size]:
        """What multiplies to the FLOPs: 2 per multiply-add, and every axis once.

        `masked` counts only the query–key pairs that the mask keeps.
        """
        every = self.einsum.every
        if not masked or self.mask == "full":
            return [FLOPS_PER_MULTIPLY_ADD, *(axes[axis] for axis in every)]
        others = (axes[axis] for axis in every if axis not in ("T", "S"))
        return [FLOPS_PER_MULTIPLY_ADD, pairs(self.mask, axes["T"], axes["S"]), *others]

    def flops(self, axes: Axes, masked: bool = False) -> Size:
        """FLOPs: the product of all factors."""
        return prod(self.factors(axes, masked))

    def dims(self, axes: Axes) -> Dims:
        """m × k × n and how many times.

        Rows are the left-only axes of the workload, columns the right-only ones; what both operands and the
        result share, and the query heads that read one key head (G), repeat the product.
        """
        left, right, out = self.einsum.left, self.einsum.right, self.einsum.out
        rows = tuple(a for a in left if a in out and a not in right and a in workload.AXES)
        columns = tuple(a for a in right if a in out and a not in left)
        contracted = tuple(a for a in left if a not in out)
        repeats = tuple(a for a in out if a not in rows and a not in columns)
        return Dims(size(axes, rows), size(axes, contracted), size(axes, columns), size(axes, repeats))

    def bits(self, axes: Axes, weights: int, activations: int) -> tuple[Size, Size, Size]:
        """Bits of the left operand, the right operand and the result, at so many bits per element of either kind."""

        def taken(operand: Letters) -> Size:
            return size(axes, operand) * (weights if _is_weight(operand) else activations)

        return taken(self.einsum.left), taken(self.einsum.right), taken(self.einsum.out)

    def parameters(self) -> tuple[Parameter, ...]:
        """The weight, if one operand is a weight, and the bias."""
        axes = self.weight_axes()
        if axes is None:
            return ()
        weight = Parameter(f"{self.weight or self.path}.weight", axes)
        if not self.bias:
            return (weight,)
        outputs = tuple(a for a in axes if a in self.einsum.out)
        return weight, Parameter(f"{self.path}.bias", outputs)

    def backward(self) -> tuple[Matmul, Matmul]:
        """The gradients of both operands: the same letters with the operands exchanged."""
        left, right, out = (" ".join(operand) for operand in (self.einsum.left, self.einsum.right, self.einsum.out))
        return (
            Matmul(f"{self.path}.grad_left", f"{out}, {right} -> {left}", mask=self.mask),
            Matmul(f"{self.path}.grad_right", f"{left}, {out} -> {right}", mask=self.mask),
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is read by row, not multiplied: an embedding."""

    path: str
    spec: str

    def __post_init__(self) -> None:
        stored(self.path, self.spec)

    def parameters(self) -> tuple[Parameter, ...]:
        """The table itself."""
        return (Parameter(f"{self.path}.weight", letters(self.spec)),)


@dataclass(frozen=True, slots=True)
class State:
    """What is kept between steps: a key or value cache."""

    path: str
    spec: str

    def __post_init__(self) -> None:
        letters(self.spec)

    def parameters(self) -> tuple[Parameter, ...]:
        """None: state is not trained."""
        return ()

    def elements(self, axes: Axes) -> Size:
        """Elements kept at the end of the step."""
        return size(axes, letters(self.spec))


@dataclass(frozen=True, slots=True)
class Pointwise:
    """Work that is no product: a norm, a softmax, an activation, a rotation, an addition.

    Counted in elements of its result, never in FLOPs: how many operations an element costs is the kernel's affair.
    `weight` and `bias` are the axes of its parameters.
    """

    path: str
    spec: str
    weight: str = ""
    bias: str = ""

    def __post_init__(self) -> None:
        for operand in (self.weight, self.bias):
            if not set(stored(self.path, operand)) <= set(letters(self.spec)):
                raise SpecError(f"{self.path}: parameters {operand!r} do not fit the result {self.spec!r}")

    def parameters(self) -> tuple[Parameter, ...]:
        """Scale and shift, where the part has them."""
        named = (("weight", self.weight), ("bias", self.bias))
        return tuple(Parameter(f"{self.path}.{name}", letters(axes)) for name, axes in named if axes)

    def elements(self, axes: Axes) -> Size:
        """Elements of the result."""
        return size(axes, letters(self.spec))


Line: TypeAlias = Matmul | Table | State | Pointwise
LineT = TypeVar("LineT", Matmul, Table, State, Pointwise)


@dataclass(frozen=True, slots=True)
class Group:
    """Lines, the sizes of their own axes, and the blocks they stand for.

    The embeddings and the head stand alone: count 1 and no numbers. `*` in a path stands for the block's number.
    """

    lines: tuple[Line, ...]
    axes: Axes
    count: Size = 1
    numbers: range = range(0)

    def places(self, path: str, unfolded: bool) -> Iterator[tuple[str, Size]]:
        """Where `path` stands and how often: once for all blocks, or, unfolded, once in each."""
        if unfolded and self.numbers:
            for number in self.numbers:
                yield path.replace("*", str(number)), 1
        else:
            yield path, self.count


@dataclass(frozen=True, slots=True)
class Product:
    """One line of products, evaluated for a group of blocks: FLOPs of all `dims.times` runs, forward and backward.

    `axes` are the sizes of its letters, `count` the blocks it stands for.
    """

    path: str
    numbers: range
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


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter, evaluated for a group of blocks: `count` tensors of `shape`, `elements` numbers each."""

    path: str
    shape: tuple[Size, ...]
    elements: Size
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


@dataclass(frozen=True, slots=True)
class Ledger:
    """All lines of a model. Holds leaves only: every subtotal is computed, so nothing is counted twice.

    `at` is what the workload binds (`Workload.axes()`). Counts are dicts by path, where `blocks.*` stands for
    all blocks together; `unfolded` gives each block its own number.
    """

    groups: tuple[Group, ...]

    def products(self, at: Axes, *, masked: bool = False) -> list[Product]:
        """Every product with its m × k × n, how often it runs, and its FLOPs."""
        found = []
        for group in self.groups:
            axes = {**group.axes, **at}
            for line in (line for line in group.lines if isinstance(line, Matmul)):
                dims, flops = line.dims(axes), line.flops(axes, masked)
                backward = sum(gradient.flops(axes, masked) for gradient in line.backward())
                dims = replace(dims, times=group.count * dims.times)
                each = (line.path, group.numbers, line, axes, group.count, dims)
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
        found: dict[tuple[str, int], Tensor] = {}
        for index, group in enumerate(self.groups):
            for parameter in (p for line in group.lines for p in line.parameters()):
                shape = tuple(group.axes[axis] for axis in parameter.axes)
                for path, count in group.places(parameter.path, unfolded):
                    tensor = Tensor(path, shape, prod(shape), count)
                    owner = index if "*" in path else -1  # blocks of another kind own other tensors
                    known = found.setdefault((path, owner), tensor)
                    if not _same_sizes(known.shape, shape):
                        raise SpecError(f"{path} is read in two shapes: {known.shape} and {shape}")
        return list(found.values())

    def parameters(self, *, unfolded: bool = False) -> dict[str, Size]:
        """Stored elements, by parameter."""
        return _summed((tensor.path, tensor.count * tensor.elements) for tensor in self.tensors(unfolded=unfolded))

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
            axes = {**group.axes, **at}
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
