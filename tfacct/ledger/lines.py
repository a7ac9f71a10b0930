"""The lines: matmuls, embeddings, states (KV cache) and pointwise work as data, and what follows from each.

A product is written as an einsum over named axes, `B T D, D N H -> B T N H`. Its FLOPs, its parameters, its m × k × n
and the bits it moves are all read off those axes, so none is ever written twice. Nothing here knows of transformers.
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
    pairs,
    renamed,
    size,
    smaller,
    stored,
    whole_bytes,
)

FLOPS_PER_MULTIPLY_ADD = 2

ACTIVE = "A"
"""The axis of the experts that each token is sent to."""
NO_MATRIX = EXPERTS, GATE, CHOICES, MIXED, UNMIXED = "E", "U", "Er", "Xw", "Xk"
"""The axes of what only weighs: one number for each expert, or one alone."""
WINDOW = "W"
"""The axis of the keys that a query of a windowed block sees; the ledger binds S by it."""
AROUND = "Wb"
"""The same where a query sees keys before and behind it: all keys are there, so it binds nothing."""
CHOSEN = "Sx"
"""The axis of the keys that an indexer chooses for a query; it binds nothing."""
WINDOWS = frozenset((WINDOW, AROUND, CHOSEN))
COMPRESSED_MASKS = frozenset(("entries", "chosen entries"))
"""Masks of compressed keys: those that are full before a query, and at most so many of them as an indexer chooses."""
CHUNK = "Pc"
"""The axis of the tokens in a chunk of a recurrence; the ledger binds by it how many chunks there are."""
KERNEL_WIDTH = "Kb"
"""The axis of the tokens around one that a convolution sees, an odd number; it binds nothing."""
TAPS = "Kw"
"""The axis of the taps of a convolution in groups."""
FRONT, FURTHER = "Xc", "Xr"
"""The axes of the learned tokens in front of an image's patches, by which the ledger binds how many patches there are,
and of those of them after the class token, which bind nothing."""
PIXELS = "Px"
"""The axis of the pixels of a square patch."""
MERGE, TILE = "Mp", "Wp"
"""The axes of the patches merged into one, and of those in a window by itself; the ledger binds by them how many."""
HALF, WHOLE, LONGEST = "Wo", "Wf", "Wl"
"""The axes of half a window that overlaps the next, of a whole one, and of the longest; the ledger binds by them."""
OF_TOKENS = frozenset((*workload.AXES, workload.PADDED, TILE, HALF, WHOLE))
RATES = {"light": "Mc", "heavy": "Mh"}
"""The axes of the tokens that one compressed key is made of; the ledger binds by them how many there are."""
SHARES = {workload.MERGED: MERGE, workload.TILES: TILE}
"""Axes that a step binds to its tokens divided by a size, and the axis of that size."""


class Parameter(NamedTuple):
    """One stored tensor by its name in the model: `blocks.*.attn.q_proj.weight`, with axes `D N H`.

    `is_expert`: the first axis counts experts, of which a token uses some. `embedding`: the tensor is a table whose
    rows are looked up. `inputs`: the axes that a matrix is multiplied along; a table, a vector, a depthwise
    convolution, a
    router and a gate have none. `table`: the line of a table, whose first axis counts rows. `idle`: no work reads it.
    `dims`: the axes of each dimension that the tensor has in torch's modules, if these are not `axes` one by one.
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
        """Shape that the tensor has in torch's modules, for these sizes of its axes."""
        return tuple([prod([int(sizes[axis]) for axis in dim]) for dim in self.dims or zip(self.axes, strict=True)])


class Dims(NamedTuple):
    """Sizes of the matrix multiplications that a product runs as: `times` × (m × k by k × n)."""

    m: Size
    k: Size
    n: Size
    times: Size


def _is_weight(operand: AxisNames) -> bool:
    """True if an operand is stored rather than computed: it carries no axis of the workload."""
    return not any(axis in workload.OF_STEPS for axis in operand)


@cache
def _weight_axes(spec: str) -> AxisNames | None:
    """Axes of the stored operand of a product; None if both are activations."""
    product = einsum(spec)
    return next((operand for operand in (product.right, product.left) if _is_weight(operand)), None)


@record
class Matmul:
    """A matrix product: one line of the ledger.

    All counts follow from the spec. The FLOPs are 2 × the product of all axes:

    >>> q_proj = Matmul("attn.q_proj", "B T D, D N H -> B T N H")
    >>> sizes = {"B": 1, "T": 3, "D": 8, "N": 2, "H": 5}
    >>> q_proj.flops(sizes)
    480

    The same product as m × k by k × n:

    >>> q_proj.dims(sizes)
    Dims(m=3, k=8, n=10, times=1)

    An operand without a workload axis (B, T, S, O, I, J) is a weight:

    >>> q_proj.weight_axes()
    ('D', 'N', 'H')

    Scores multiply two activations, so they have no weight. Under a mask, the pairs that it keeps count:

    >>> scores = Matmul("attn.scores", "B T K G H, B S K H -> B K G T S", mask="causal")
    >>> print(scores.weight_axes())
    None
    >>> heads = {"B": 1, "T": 3, "S": 5, "K": 1, "G": 2, "H": 5}
    >>> scores.flops(heads), scores.flops(heads, masked=True)
    (300, 240)

    `weight`: name of the module whose weight it reads, if that is not its own (a tied head). `bias`: it adds one number
    per output feature. `expert_axis="E"`: the weight is stored once for each of E experts, and each token is
    multiplied by A of them, so the spec has A and not E. `gradient`: the product need not contract an axis. Raises
    SpecError for a spec that cannot be such a product.
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
            raise SpecError(f"{self.path}: {self.spec!r} has no operand that could be the weight of {self.weight}")
        if self.expert_axis is not None and (self.weight_axes() is None or ACTIVE not in self.einsum.out):
            raise SpecError(f"{self.path}: {self.spec!r} has no weight, or no axis {ACTIVE}, for a bank of experts")
        if self.mask != "full" and not {*self.queries_and_keys} <= set(self.einsum.every):
            raise SpecError(f"{self.spec!r} is masked but has no query–key pairs T S")

    @property
    def einsum(self) -> Einsum:
        """The parsed spec."""
        return einsum(self.spec)

    def renamed(self, names: Mapping[str, str]) -> Matmul:
        """The same product of axes by other names."""
        return replace(self, spec=renamed(self.spec, names))

    @property
    def queries_and_keys(self) -> tuple[str, str]:
        """Axes of the pairs that a mask keeps: I and J in an encoder that a decoder reads, else T and S."""
        if self.mask in COMPRESSED_MASKS:
            entries = workload.ENTRIES, workload.HEAVY_ENTRIES
            return "T", next((axis for axis in entries if axis in self.einsum.every), "S")
        return ("I", "J") if self.mask == "near" and {"I", "J"} <= set(self.einsum.every) else ("T", "S")

    def weight_axes(self) -> AxisNames | None:
        """Axes of the operand that carries no axis of the workload; None if both are activations."""
        return _weight_axes(self.spec)

    def factors(self, axes: Axes, masked: bool = False) -> list[Size]:
        """Factors of the FLOPs: 2 per multiply-add, and every axis once.

        `masked`: only the query–key pairs that the mask keeps are counted.
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
        """Sizes m, k and n, and the number of times that this multiplication runs.

        Rows are the left-only axes, between activations those of the workload or of a window, if there are any. Columns
        are the right-only axes. Axes shared by both operands and the result, and the query heads that read one key head
        (G), repeat the multiplication.
        """
        left, right, out = self.einsum.left, self.einsum.right, self.einsum.out
        alone = tuple(a for a in left if a in out and a not in right)
        # Each of a token's experts is a product of its own.
        stored = _is_weight(right) and self.expert_axis is None
        rows = alone if stored else tuple(a for a in alone if a in OF_TOKENS) or alone
        columns = tuple(a for a in right if a in out and a not in left)
        contracted = tuple(a for a in left if a not in out)
        repeats = tuple(a for a in out if a not in rows and a not in columns)
        return Dims(size(axes, rows), size(axes, contracted), size(axes, columns), size(axes, repeats))

    def operands(self, axes: Axes) -> tuple[Size, Size, Size]:
        """Elements of the left operand, the right operand and the result, each read or written once.

        Of experts, only those that are `touched` count. A product that idles, as an encoder's does once the source
        has been read, moves nothing.
        """
        if self.idles(axes):
            return 0, 0, 0

        def elements(operand: AxisNames) -> Size:
            return size(axes, operand) * (self.touched(axes) if _is_weight(operand) else 1)

        return elements(self.einsum.left), elements(self.einsum.right), elements(self.einsum.out)

    @property
    def weighs_left(self) -> bool:
        """True if the weight is the left operand."""
        return _is_weight(self.einsum.left) and not _is_weight(self.einsum.right)

    def idles(self, axes: Axes) -> bool:
        """True if an axis is 0, so that there is nothing to multiply."""
        return any(isinstance(axes[axis], int) and axes[axis] == 0 for axis in self.einsum.every)

    def touched(self, axes: Axes) -> Size:
        """Largest number of experts whose weights a step can read: min(experts, tokens × experts per token).

        1 if the weight is not of experts.
        """
        if self.expert_axis is None:
            return 1
        return smaller(
            axes[self.expert_axis], size(axes, (*(a for a in self.einsum.out if a in workload.AXES), ACTIVE))
        )

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, where the product has them."""
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
        """Axes of each dimension of the weight in torch's modules: of a matrix its outputs, then its inputs; of a
        depthwise convolution its channels, the single channel that each of them reads, and the taps; of a convolution
        in groups the channels of all, those that each of them reads, and the taps."""
        results = tuple(axis for axis in weight if axis in self.einsum.out)
        summed = tuple(axis for axis in weight if axis not in results)
        if TAPS in summed and {*results} & {*self.einsum.left} and not {*results} <= {*self.einsum.left}:
            return (results, *((axis,) for axis in summed))
        if inputs:
            return tuple(axis for axis in weight if axis not in inputs), inputs
        if not results:
            return ()
        return (results, (), summed) if set(results) <= set(self.einsum.left) else (results, summed)

    def _inputs(self, weight: AxisNames) -> AxisNames:
        """Axes of the weight that are its module's input. They are written first in a spec; a weight that is not summed
        over its first axis is read transposed (a tied head)."""
        results = tuple(axis for axis in weight if axis in self.einsum.out)
        own = [axis for axis in results if axis not in (*self.einsum.left, *NO_MATRIX)]
        if not own:
            return ()
        return weight[:1] if weight[0] in results else tuple(axis for axis in weight if axis not in results)

    def backward(self) -> tuple[Matmul, Matmul]:
        """Products that compute the gradients of both operands: the same axes with the operands exchanged.

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
    """A table that is read by row and not multiplied.

    `embedding`: its rows are vectors of tokens, positions or segments. `trained`: a step has its gradient. `within`:
    its class has it in the first block of its side. Raises SpecError for an axis of the workload.
    """

    path: str
    spec: str
    embedding: bool = True
    trained: bool = True
    within: bool = False

    def __post_init__(self) -> None:
        stored(self.path, self.spec)

    def renamed(self, names: Mapping[str, str]) -> Table:
        """The same table with other names for its axes."""
        return replace(self, spec=renamed(self.spec, names))

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the table itself."""
        return (Parameter(f"{self.path}.weight", axis_names(self.spec), embedding=self.embedding, table=self),)


@record
class State:
    """A tensor that is kept between steps: a key or value cache, a latent, or a state of fixed size. `bits`: width of
    its elements, where they are not stored as the cache is."""

    path: str
    spec: str
    bits: int | None = None

    def __post_init__(self) -> None:
        axis_names(self.spec)

    def renamed(self, names: Mapping[str, str]) -> State:
        """The same state with other names for its axes."""
        return replace(self, spec=renamed(self.spec, names))

    def parameters(self) -> tuple[Parameter, ...]:
        """Return nothing: state is not trained."""
        return ()

    def elements(self, axes: Axes) -> Size:
        """Number of elements kept at the end of the step."""
        return size(axes, axis_names(self.spec))

    def bytes(self, axes: Axes, cache: int) -> Size:
        """Bytes kept at the end of the step, rounded up, where the cache has elements of so many bits."""
        return whole_bytes(self.elements(axes), cache if self.bits is None else self.bits)


PointwiseKind: TypeAlias = Literal[
    "",
    "activation",
    "gate",
    "norm_layer",
    "norm_rms",
    "residual",
    "rotary",
    "routing",
    "scale",
    "softmax",
    "sum",
    "weighting",
]
"""Kinds of pointwise work. `gate`: a product of two results, one of them through a function. `residual`: adds a result
to the residual stream. `routing`: chooses a token's experts and their shares. `scale`: multiplies by a constant.
`weighting`: multiplies experts' results by their shares."""


@record
class Pointwise:
    """Work that is no product: a norm, a softmax, an activation, a rotation, an addition.

    Counted in elements of its result, never in FLOPs: how many operations an element takes depends on the kernel.
    `weight` and `bias` are the axes of its parameters. `kind`: what it does, "" for a formula of its own. `function`:
    the name of an activation, or of what a gate passes. `module`: the module whose parameters it reads, if they are not
    its own (one norm shared by several lines). Raises SpecError for parameters whose axes the result does not have.
    """

    path: str
    spec: str
    weight: str = ""
    bias: str = ""
    kind: PointwiseKind = ""
    function: str = ""
    module: str | None = None

    def __post_init__(self) -> None:
        for operand in filter(None, (self.weight, self.bias)):
            if not set(stored(self.path, operand)) <= set(axis_names(self.spec)):
                raise SpecError(f"{self.path}: parameters {operand!r} do not fit the result {self.spec!r}")

    @property
    def sums(self) -> bool:
        """True if it only adds, or multiplies by a constant: its backward pass needs no operand."""
        return self.kind in ("sum", "residual", "scale")

    def renamed(self, names: Mapping[str, str]) -> Pointwise:
        """The same work with other names for its axes, and for those of its parameters."""
        weight, bias = renamed(self.weight, names), renamed(self.bias, names)
        return replace(self, spec=renamed(self.spec, names), weight=weight, bias=bias)

    def parameters(self) -> tuple[Parameter, ...]:
        """Scale and shift, where the line has them."""
        named = (("weight", self.weight), ("bias", self.bias))
        owner = self.module or self.path
        return tuple([_vector(f"{owner}.{name}", axis_names(axes)) for name, axes in named if axes])

    def elements(self, axes: Axes) -> Size:
        """Number of elements of the result."""
        return size(axes, axis_names(self.spec))


def _vector(path: str, axes: AxisNames) -> Parameter:
    """A parameter of pointwise work. Heads lie next to each other in torch's modules."""
    heads = len(axes) == 2 and axes[0] in ("N", "K") and axes[1][0] == "H"
    return Parameter(path, axes, dims=(axes,) if heads else ())


@record
class Unused:
    """A line that is stored and never run: its parameters count, and its work does not."""

    of: Matmul | Pointwise

    @property
    def path(self) -> str:
        """Path at which the line would run."""
        return self.of.path

    def renamed(self, names: Mapping[str, str]) -> Unused:
        """The same line with other names for its axes."""
        return Unused(self.of.renamed(names))

    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of the line."""
        return tuple([parameter._replace(idle=True) for parameter in self.of.parameters()])


Line: TypeAlias = Matmul | Table | State | Pointwise | Unused
LineT = TypeVar("LineT", Matmul, Table, State, Pointwise)
