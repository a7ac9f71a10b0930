"""Lines evaluated for a group of layers: matmuls with FLOPs and bytes moved, tensors, and KV cache sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfacct.base.errors import UsageError
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.einsum import Axes, Size, axis_names, is_symbolic, renamed, rounded_up, size
from tfacct.ledger.lines import CAUSAL_KERNEL, Dims, Matmul, Parameter, State
from tfacct.ledger.storage import BF16_EACH, Role, Storage, Stored, Width, width
from tfacct.ledger.workload import COMPRESSED

OUTSIDE: Mapping[str, Role] = {"lm_head.weight": "head", "embed.weight": "embedding"}
"""Roles of matrices outside the layers: the head, and the embedding that a tied head reads."""


class Product(NamedTuple):
    """A Matmul evaluated for its group of layers.

    `axes` are the sizes of the axes, `count` the number of layers; `numbers`, `kind` and `names` are the group's.
    `forward` and `backward` are the FLOPs of all `dims.times` multiplications. `experts`: the model has experts.
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
    experts: bool
    names: Mapping[str, str]

    @property
    def spec(self) -> str:
        """Einsum spec with the model's names of the axes."""
        return renamed(self.line.spec, self.names)

    def moved(self, weights: Storage, activations: Width) -> tuple[Size, Size, Size]:
        """Bytes of the left operand, the right operand and the result in all layers, each rounded up per layer.

        An unfused kernel reads each operand once and writes the result once. Only experts that a step can use are read.
        """
        left, right, out = (self.count * activations.bytes(elements) for elements in self.line.operands(self.axes))
        if self.line.weight_axes() is not None and not self.line.is_empty(self.axes):
            stored = as_stored(self.line.parameters()[0], self.axes, self.experts)
            right = self._weight_bytes(weights, stored._replace(copies=self.line.touched(self.axes)))
        return left, right, out

    def _weight_bytes(self, weights: Storage, stored: Stored) -> Size:
        """Bytes of the weight in all layers."""
        if not (weights.by_block and self.numbers):
            return self.count * weights.bytes(stored)
        path = stored.path
        return sum(weights.bytes(stored._replace(path=paths.numbered(path, number))) for number in self.numbers)

    def cost(self, weights: Storage, activations: Width) -> Cost:
        """FLOPs of the product in a forward pass, bytes read and bytes written."""
        left, right, out = self.moved(weights, activations)
        return Cost(self.forward, left + right, out)


class Tensor(NamedTuple):
    """A Parameter evaluated for its group of layers: `count` tensors of `shape`, with `elements` numbers each.

    `active`: elements of each that are used for one token (for experts, the top-k). `axes` are the sizes of the group's
    axes. `experts`: the model has experts.
    """

    path: str
    shape: tuple[Size, ...]
    elements: Size
    active: Size
    count: Size
    parameter: Parameter
    axes: Axes
    experts: bool

    @property
    def embedding(self) -> bool:
        """True for an embedding of tokens, positions or segments."""
        return self.parameter.embedding

    @property
    def shape_in_torch(self) -> tuple[int, ...]:
        """Shape in torch's modules: a matrix is outputs × inputs, with the heads concatenated."""
        return self.parameter.shape_in_torch(dict(zip(self.parameter.axes, self.shape, strict=True)))

    @property
    def stored(self) -> Stored:
        """Description of the tensor for a storage format."""
        return as_stored(self.parameter, self.axes, self.experts)._replace(path=self.path)


def as_stored(parameter: Parameter, axes: Axes, experts: bool) -> Stored:
    """Description of a parameter for a storage format, in a model with or without `experts`."""
    path, elements = parameter.path, size(axes, parameter.axes)
    if parameter.embedding:
        return Stored("embedding", elements, axes[parameter.axes[-1]], path=path)
    if not parameter.inputs:
        return Stored("other", elements, path=path)
    inputs = size(axes, parameter.inputs)
    if parameter.is_expert:
        expert_axis, *matrix = parameter.axes
        return Stored("expert", size(axes, tuple(matrix)), inputs, axes[expert_axis], path)
    if not paths.repeated(path):
        return Stored(OUTSIDE.get(path, "other"), elements, inputs, path=path)
    return Stored("dense" if experts else "matrix", elements, inputs, path=path)


def same_sizes(some: tuple[Size, ...], others: tuple[Size, ...]) -> bool:
    """True if two shapes have the same sizes in any order: a tied head reads its embedding transposed."""
    rest = list(others)
    for size_ in some:
        index = next((i for i, other in enumerate(rest) if _same_size(size_, other)), None)
        if index is None:
            return is_symbolic(size_) and sorted(map(str, some)) == sorted(map(str, others))
        rest.pop(index)
    return not rest


def _same_size(one: Size, other: Size) -> bool:
    """True if two sizes are the same number or the same array; arrays are not compared element by element."""
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


TOKENS = frozenset(("S", "J", *COMPRESSED["entries"].values()))
"""Axes of tokens or compressed keys in a state that grows with the context or the source."""


def is_fixed(line: State) -> bool:
    """True for a state of fixed size, which does not grow with the context or the source."""
    return TOKENS.isdisjoint(axis_names(line.spec))


def width_of(line: State, cache: Width) -> Width:
    """Width of a state: its own dtype if it has one, else that of the cache.

    A state of fixed size has at least 16 bits, also with a narrower cache. In an engine's page, it has the dtype that
    the engine stores it in.
    """
    if cache.state_page is not None and is_fixed(line):
        return BF16_EACH if CAUSAL_KERNEL in axis_names(line.spec) else width(cache.state_page.dtype)
    if line.bits is not None:
        return Width(f"fp{line.bits}", line.bits)
    return BF16_EACH if cache.each < 2 and is_fixed(line) else cache


def cached_bytes(line: State, axes: Axes, cache: Width) -> Size:
    """Bytes of a state at the end of a step: tokens rounded up to whole pages, with the scales of the cache.

    Raises UsageError if a vector is no multiple of the cache's block.
    """
    how, names = width_of(line, cache), axis_names(line.spec)
    if cache.state_page is not None and is_fixed(line):
        page = cache.state_page
        taken = page.convolution if CAUSAL_KERNEL in names else page.bytes - page.convolution
        return size(axes, tuple(name for name in names if name == "B")) * taken
    if how.page > 1 and "S" in names:
        axes = {**axes, "S": rounded_up(axes["S"], how.page) * how.page}
    if how.block == 1 and not how.scale:
        return how.bytes(size(axes, names))
    *vectors, last = names
    if not _divides(how.block, axes[last]):
        what = f"{paths.short(paths.starred(line.path))} are {axes[last]:,} wide"
        raise UsageError(
            f"a cache in {how.name} needs vectors whose width is a multiple of {how.block}, but those of {what}",
            "use bf16 or fp8; llama.cpp has the same limit",
        )
    return size(axes, tuple(vectors)) * (how.bytes(axes[last]) + how.scale)


def _divides(block: int, vector: Size) -> bool:
    """True if a size, or every element of an array, is a multiple of `block`. A symbol is assumed to be."""
    if is_symbolic(vector):
        return True
    rest = vector % block
    return not (rest.any() if hasattr(rest, "any") else rest)
