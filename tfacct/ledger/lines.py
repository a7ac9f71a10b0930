"""Lines of the ledger as data: matmuls, embeddings, states (KV cache) and pointwise operations.

A matmul is an einsum over named axes, `B T D, D N H -> B T N H`. FLOPs, parameters, m × k × n and bytes moved all
follow from the axes. This module does not depend on transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import prod
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from tfacct.base.record import record
from tfacct.ledger import workload
from tfacct.ledger.einsum import (
    Axes,
    AxisNames,
    Einsum,
    Mask,
    Size,
    SpecError,
    axis_names,
    compressed_pairs,
    einsum,
    packed_bytes,
    pairs,
    renamed,
    size,
    smaller,
    stored,
)

FLOPS_PER_MULTIPLY_ADD = 2

ACTIVE = "A"
"""Axis of the experts per token (top-k)."""
EXPERTS, GATE = "E", "U"
"""Axes of router scores, one per expert, and of a single gate."""
NO_MATRIX = (EXPERTS, GATE, "Er", "Xw", "Xk")
"""Axes of router scores, gates and mixing weights: their weights are no matrices for a format."""
WINDOW = "W"
"""Axis of a sliding window: keys that a query sees. The ledger computes S from it."""
AROUND = "Wb"
"""Axis of a window on both sides of the query. All keys are present, so S does not change."""
CHOSEN = "Sx"
"""Axis of the keys that an indexer chooses for a query. S does not change."""
WINDOWS = frozenset((WINDOW, AROUND, CHOSEN))
COMPRESSED_MASKS = frozenset(("entries", "chosen entries"))
"""Masks of compressed keys: all complete keys up to the query, or at most as many as an indexer chooses."""
CHUNK = "Pc"
"""Axis of the tokens in a chunk of a recurrence. The ledger computes the number of chunks from it."""
CAUSAL_KERNEL, CENTRED_KERNEL, GROUPED_KERNEL = "Kc", "Kb", "Kw"
"""Axes of the kernel size of a convolution, in tokens: over the last tokens, around a token (an odd number), and of
channels in groups."""
FRONT, FURTHER = "Xc", "Xr"
"""Axes of the learned tokens before an image's patches, from which the ledger computes the number of patches, and of
those after the class token."""
PIXELS = "Px"
"""Axis of the pixels of a square patch."""
MERGE, TILE = "Mp", "Wp"
"""Axes of the patches merged into one, and of the patches in a window. The ledger computes merged patches and
windows."""
HALF, FULL_WINDOW, LONGEST = "Wo", "Wf", "Wl"
"""Axes of half an overlapping window, of a full one, and of the longest. The ledger computes windows from them."""
OF_TOKENS = frozenset((*workload.AXES, workload.PADDED, TILE, HALF, FULL_WINDOW))
RATES = {"light": "Mc", "heavy": "Mh"}
"""Axes of the tokens per compressed key. The ledger computes the number of compressed keys from them."""
SHARES = {workload.MERGED: MERGE, workload.TILES: TILE}
"""Axes that are the tokens of a step divided by a size, and the axis of that size."""


class Parameter(NamedTuple):
    """A stored tensor with its path in the model and its axes: `blocks.*.attn.q_proj.weight`, `D N H`.

    `is_expert`: the first axis counts experts. `embedding`: the rows of the tensor are looked up. `inputs`: the input
    axes of a matrix; embeddings, vectors, depthwise convolutions, routers and gates have none. `table`: the line of a
    lookup table; its first axis counts rows. `idle`: stored, but not used in a step. `dims`: the axes of each dimension
    in torch's modules, if not one axis per dimension.
    """

    path: str
    axes: AxisNames
    is_expert: bool = False
    embedding: bool = False
    inputs: AxisNames = ()
    table: Table | None = None
    idle: bool = False
    dims: tuple[AxisNames, ...] = ()

    def shape_in_torch(self, sizes: Axes) -> tuple[int, ...]:
        """Shape in torch's modules, for these sizes of the axes."""
        return tuple([prod([int(sizes[axis]) for axis in dim]) for dim in self.dims or zip(self.axes, strict=True)])


class Dims(NamedTuple):
    """Matrix multiplications of a line: `times` × (m × k by k × n)."""

    m: Size
    k: Size
    n: Size
    times: Size


def _is_weight(operand: AxisNames) -> bool:
    """True if an operand is a weight: it has no axis of the workload."""
    return not any(axis in workload.OF_STEPS for axis in operand)


@cache
def _weight_axes(spec: str) -> AxisNames | None:
    """Axes of the weight of a matmul; None if both operands are activations."""
    right = einsum(spec).right
    return right if _is_weight(right) else None


@record
class Matmul:
    """A matrix product: one line of the ledger.

    All counts follow from the spec. FLOPs are 2 × the product of all axes:

    >>> q_proj = Matmul("attn.q_proj", "B T D, D N H -> B T N H")
    >>> sizes = {"B": 1, "T": 3, "D": 8, "N": 2, "H": 5}
    >>> q_proj.flops(sizes)
    480

    As m × k by k × n:

    >>> q_proj.dims(sizes)
    Dims(m=3, k=8, n=10, times=1)

    A right operand without a workload axis (B, T, S, O, I, J) is a weight:

    >>> q_proj.weight_axes()
    ('D', 'N', 'H')

    Scores multiply two activations, so they have no weight. With `masked`, only visible pairs count:

    >>> scores = Matmul("attn.scores", "B T K G H, B S K H -> B K G T S", mask="causal")
    >>> print(scores.weight_axes())
    None
    >>> heads = {"B": 1, "T": 3, "S": 5, "K": 1, "G": 2, "H": 5}
    >>> scores.flops(heads), scores.flops(heads, masked=True)
    (300, 240)

    `weight`: path of the module with the weight, if another one (a tied head). `bias`: adds one number per output
    feature. `expert_axis="E"`: there is a weight for each of E experts, and each token uses A of them, so the spec has
    A instead of E. `gradient`: the product need not contract an axis. Raises SpecError for an invalid spec.
    """

    path: str
    spec: str
    weight: str | None = None
    bias: bool = False
    mask: Mask = "full"
    expert_axis: str | None = None
    gradient: bool = False

    def __post_init__(self) -> None:
        if not self.gradient and not self.einsum.contracts:
            raise SpecError(f"{self.spec!r}: no axis is contracted")
        if self.weight is not None and self.weight_axes() is None:
            raise SpecError(f"{self.path}: {self.spec!r} multiplies two activations, not the weight of {self.weight}")
        if self.expert_axis is not None and (self.weight_axes() is None or ACTIVE not in self.einsum.out):
            raise SpecError(f"{self.path}: {self.spec!r} needs a weight and axis {ACTIVE} for experts")
        if self.mask != "full" and not {*self.queries_and_keys} <= set(self.einsum.every):
            raise SpecError(f"{self.spec!r} is masked but has no query–key pairs T S")

    @property
    def einsum(self) -> Einsum:
        """The parsed spec."""
        return einsum(self.spec)

    def renamed(self, names: Mapping[str, str]) -> Matmul:
        """Copy with axes renamed."""
        return replace(self, spec=renamed(self.spec, names))

    @property
    def queries_and_keys(self) -> tuple[str, str]:
        """Axes of queries and keys of a mask: I and J in an encoder that a decoder reads, else T and S."""
        if self.mask in COMPRESSED_MASKS:
            entries = workload.ENTRIES, workload.HEAVY_ENTRIES
            return "T", next((axis for axis in entries if axis in self.einsum.every), "S")
        return ("I", "J") if self.mask == "near" and {"I", "J"} <= set(self.einsum.every) else ("T", "S")

    def weight_axes(self) -> AxisNames | None:
        """Axes of the weight; None if both operands are activations."""
        return _weight_axes(self.spec)

    def factors(self, axes: Axes, masked: bool = False) -> list[Size]:
        """Factors of the FLOPs: 2 per multiply-add, and every axis once.

        `masked`: only visible query–key pairs are counted.
        """
        every = self.einsum.every
        if not masked or self.mask == "full":
            return [FLOPS_PER_MULTIPLY_ADD, *(axes[axis] for axis in every)]
        queries, seen = self.queries_and_keys
        others = (axes[axis] for axis in every if axis not in (queries, seen))
        if self.mask in COMPRESSED_MASKS:
            rate = axes[RATES["light" if seen == workload.ENTRIES else "heavy"]]
            top = axes[CHOSEN] if self.mask == "chosen entries" else None
            visible = compressed_pairs(axes[queries], axes.get(workload.POSITIONS, axes["S"]), rate, top)
            return [FLOPS_PER_MULTIPLY_ADD, visible, *others]
        window = axes.get({"near": AROUND, "chosen": CHOSEN}.get(self.mask, WINDOW))
        keys = axes.get(workload.POSITIONS, axes[seen]) if self.mask == "chunks" else axes[seen]
        return [FLOPS_PER_MULTIPLY_ADD, pairs(self.mask, axes[queries], keys, window), *others]

    def flops(self, axes: Axes, masked: bool = False) -> Size:
        """FLOPs of the product, 2 per multiply-add."""
        return prod(self.factors(axes, masked))

    def dims(self, axes: Axes) -> Dims:
        """Sizes m, k and n, and the number of repetitions.

        Rows are the axes of the left operand only; of two activations, only those of the workload or of a window, if
        there are any. Columns are the axes of the right operand only. The other axes of the result repeat the
        multiplication: those that are in both operands, and the query heads of a key head (G).
        """
        left, right, out = self.einsum.left, self.einsum.right, self.einsum.out
        alone = tuple(a for a in left if a in out and a not in right)
        # Each expert of a token is a separate product.
        stored = _is_weight(right) and self.expert_axis is None
        rows = alone if stored else tuple(a for a in alone if a in OF_TOKENS) or alone
        columns = tuple(a for a in right if a in out and a not in left)
        contracted = tuple(a for a in left if a not in out)
        repeats = tuple(a for a in out if a not in rows and a not in columns)
        return Dims(size(axes, rows), size(axes, contracted), size(axes, columns), size(axes, repeats))

    def operands(self, axes: Axes) -> tuple[Size, Size, Size]:
        """Elements of the left operand, the right operand and the result, each read or written once.

        Only `touched` experts count. All are 0 if an axis is 0, as for an encoder after the prefill.
        """
        if self.is_empty(axes):
            return 0, 0, 0

        left, right, out = (size(axes, operand) for operand in self.einsum[:3])
        return left, right * self.touched(axes), out

    def is_empty(self, axes: Axes) -> bool:
        """True if an axis is 0: nothing is multiplied."""
        return any(isinstance(axes[axis], int) and axes[axis] == 0 for axis in self.einsum.every)

    def touched(self, axes: Axes) -> Size:
        """Most experts that a step can use: min(experts, tokens × experts per token); 1 without experts."""
        if self.expert_axis is None:
            return 1
        return smaller(
            axes[self.expert_axis], size(axes, (*(a for a in self.einsum.out if a in workload.AXES), ACTIVE))
        )

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, if any."""
        axes = self.weight_axes()
        if axes is None:
            return ()
        experts: AxisNames = (self.expert_axis,) if self.expert_axis else ()
        leading: tuple[AxisNames, ...] = (experts,) if experts else ()
        inputs = self._inputs(axes)
        dims = (*leading, *self._dims(axes, inputs))
        path = f"{self.weight or self.path}.weight"
        weight = Parameter(path, (*experts, *axes), bool(experts), inputs=inputs, dims=dims)
        if not self.bias:
            return (weight,)
        outputs = tuple(a for a in axes if a in self.einsum.out)
        bias = Parameter(f"{self.path}.bias", (*experts, *outputs), bool(experts), dims=(*leading, outputs))
        return weight, bias

    def _dims(self, weight: AxisNames, inputs: AxisNames) -> tuple[AxisNames, ...]:
        """Axes of each dimension of the weight in torch's modules.

        A matrix has outputs, inputs. A depthwise convolution has channels, 1, kernel width. A grouped convolution has
        channels, channels per group, kernel width.
        """
        results = tuple(axis for axis in weight if axis in self.einsum.out)
        summed = tuple(axis for axis in weight if axis not in results)
        if GROUPED_KERNEL in summed and {*results} & {*self.einsum.left} and not {*results} <= {*self.einsum.left}:
            return (results, *((axis,) for axis in summed))
        if inputs:
            return tuple(axis for axis in weight if axis not in inputs), inputs
        if not results:
            return ()
        return (results, (), summed) if set(results) <= set(self.einsum.left) else (results, summed)

    def _inputs(self, weight: AxisNames) -> AxisNames:
        """Axes of the weight that are its module's input. They come first in a spec; if the first axis is not
        contracted, the weight is used transposed (a tied head)."""
        results = tuple(axis for axis in weight if axis in self.einsum.out)
        outputs = [axis for axis in results if axis not in (*self.einsum.left, *NO_MATRIX)]
        if not outputs:
            return ()
        return weight[:1] if weight[0] in results else tuple(axis for axis in weight if axis not in results)

    def backward(self) -> tuple[Matmul, Matmul]:
        """Matmuls for the gradients of both operands: the same axes with operands exchanged.

        Each has as many FLOPs as the forward product, so a backward pass takes twice the forward FLOPs (Kaplan et al.,
        "Scaling Laws for Neural Language Models", arXiv 2001.08361, section 2.1).
        """
        left, right, out = (" ".join(operand) for operand in (self.einsum.left, self.einsum.right, self.einsum.out))
        return (
            Matmul(f"{self.path}.grad_left", f"{out}, {right} -> {left}", mask=self.mask, gradient=True),
            Matmul(f"{self.path}.grad_right", f"{left}, {out} -> {right}", mask=self.mask, gradient=True),
        )


@record
class Table:
    """An embedding or other lookup table: rows are looked up, not multiplied.

    `embedding`: rows are vectors of tokens, positions or segments. `trained`: it has a gradient. `within`: the
    transformers class stores it in the first layer of its side. Raises SpecError for an axis of the workload.
    """

    path: str
    spec: str
    embedding: bool = True
    trained: bool = True
    within: bool = False

    def __post_init__(self) -> None:
        stored(self.path, self.spec)

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Copy with axes renamed."""
        return replace(self, spec=renamed(self.spec, names))

    def parameters(self) -> tuple[Parameter, ...]:
        """The table itself."""
        return (Parameter(f"{self.path}.weight", axis_names(self.spec), embedding=self.embedding, table=self),)


@record
class State:
    """A tensor cached between steps: keys, values, a latent, or a state of fixed size. `bits`: width of its elements,
    if not the width of the cache."""

    path: str
    spec: str
    bits: int | None = None

    def __post_init__(self) -> None:
        axis_names(self.spec)

    def renamed(self, names: Mapping[str, str]) -> State:
        """Copy with axes renamed."""
        return replace(self, spec=renamed(self.spec, names))

    def parameters(self) -> tuple[Parameter, ...]:
        """Empty: state is not trained."""
        return ()

    def elements(self, axes: Axes) -> Size:
        """Number of elements cached after the step."""
        return size(axes, axis_names(self.spec))

    def bytes(self, axes: Axes, cache: int) -> Size:
        """Bytes cached after the step, rounded up, with a cache of `cache` bits per element."""
        return packed_bytes(self.elements(axes), cache if self.bits is None else self.bits)


PointwiseKind: TypeAlias = Literal[
    "", "activation", "gate", "norm_layer", "norm_rms", "residual", "rotary", "routing", "scale", "softmax", "sum",
    "weighting",
]  # fmt: skip
"""Kinds of pointwise operations. `gate`: product of two results, one after an activation. `residual`: adds a result to
the residual stream. `routing`: chooses the experts of a token and their weights. `scale`: multiplies by a constant.
`weighting`: multiplies the results of experts by their weights."""


@record
class Pointwise:
    """A pointwise operation: norm, softmax, activation, rotary embedding, addition.

    Counted in elements of the result, not in FLOPs: operations per element depend on the kernel. `weight` and `bias`
    are the axes of the parameters. `kind`: the operation, "" for other formulas. `function`: name of the activation
    function. `module`: path of the module with the parameters, if another one (one norm shared by several lines).
    `dropout`: a residual sum adds a result after dropout. `needs_result`: backward needs that result inside the
    recomputed module that computes it. `per_head`: a norm of each head, with a row of parameters.
    Raises SpecError for parameters with axes that the result does not have.
    """

    path: str
    spec: str
    weight: str = ""
    bias: str = ""
    kind: PointwiseKind = ""
    function: str = ""
    module: str | None = None
    dropout: bool = False
    needs_result: bool = False
    per_head: bool = False

    def __post_init__(self) -> None:
        for operand in filter(None, (self.weight, self.bias)):
            if not set(stored(self.path, operand)) <= set(axis_names(self.spec)):
                raise SpecError(f"{self.path}: parameters {operand!r} do not fit the result {self.spec!r}")

    @property
    def sums(self) -> bool:
        """True for sums and multiplication by a constant: backward needs no operand."""
        return self.kind in ("sum", "residual", "scale")

    @property
    def saves_nothing(self) -> bool:
        """True if backward needs neither an operand nor the mask of a dropout."""
        return self.sums and not self.dropout and not self.needs_result

    def renamed(self, names: Mapping[str, str]) -> Pointwise:
        """Copy with axes renamed, also those of the parameters."""
        weight, bias = renamed(self.weight, names), renamed(self.bias, names)
        return replace(self, spec=renamed(self.spec, names), weight=weight, bias=bias)

    def parameters(self) -> tuple[Parameter, ...]:
        """Scale and shift, if any."""
        named = (("weight", self.weight), ("bias", self.bias))
        owner = self.module or self.path
        return tuple([_vector(f"{owner}.{name}", axis_names(axes), self.per_head) for name, axes in named if axes])

    def elements(self, axes: Axes) -> Size:
        """Number of elements of the result."""
        return size(axes, axis_names(self.spec))


def _vector(path: str, axes: AxisNames, per_head: bool) -> Parameter:
    """Parameter of a pointwise operation; torch's modules concatenate the heads, except those of a norm `per_head`."""
    heads = len(axes) == 2 and axes[0] in ("N", "K") and axes[1][0] == "H"
    return Parameter(path, axes, dims=(axes[:1], axes[1:]) if per_head else (axes,) if heads else ())


@record
class Unused:
    """A line with stored parameters that is never run: only the parameters are counted."""

    of: Matmul | Pointwise

    @property
    def path(self) -> str:
        """Path of the line."""
        return self.of.path

    def renamed(self, names: Mapping[str, str]) -> Unused:
        """Copy with axes renamed."""
        return Unused(self.of.renamed(names))

    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of the line, marked as idle."""
        return tuple([parameter._replace(idle=True) for parameter in self.of.parameters()])


Line: TypeAlias = Matmul | Table | State | Pointwise | Unused
LineT = TypeVar("LineT", Matmul, Table, State, Pointwise)
