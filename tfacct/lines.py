"""The lines: products, tables, states and pointwise work as data, and what follows from each.

A product is written as an einsum over named axes, `B T D, D N H -> B T N H`. Its FLOPs, its parameters,
its m × k × n and the bits it moves are all read off those letters, so none of them is ever written twice.
This room knows axes, not transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import NamedTuple, TypeAlias, TypeVar

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
    smaller,
    stored,
)

FLOPS_PER_MULTIPLY_ADD = 2

ACTIVE = "A"
"""The axis of the experts that each token is sent to."""
WINDOW = "W"
"""The axis of the keys that a query of a windowed block sees; the ledger binds S by it."""


class Parameter(NamedTuple):
    """One stored tensor, by the name it has in the model: `blocks.*.attn.q_proj.weight`, axes `D N H`.

    `bank`: its first axis counts experts, of which a token uses some.
    """

    path: str
    axes: Letters
    bank: bool = False


class Dims(NamedTuple):
    """A product as the matrix multiplications that run: `times` × (m × k by k × n)."""

    m: Size
    k: Size
    n: Size
    times: Size


def _is_weight(operand: Letters) -> bool:
    """Whether an operand is stored, not computed: it carries no axis of the workload."""
    return not any(axis in workload.AXES for axis in operand)


@cache
def _weight_axes(spec: str) -> Letters | None:
    """The axes of the operand of a product that is stored."""
    product = einsum(spec)
    return next((operand for operand in (product.right, product.left) if _is_weight(operand)), None)


@dataclass(frozen=True, slots=True)
class Matmul:
    """A product. `weight` names the module whose weight it reads when that is not its own (a tied head);
    `bias` adds one number per right-only axis; `mask` says which pairs count when only those are asked for.

    `bank="E"`: the weight is stored once for each of E experts, and each token is multiplied by those of the A that
    it is sent to, so A stands in the spec and E does not. A `gradient` need not contract an axis.
    """

    path: str
    spec: str
    weight: str | None = None
    bias: bool = False
    mask: Mask = "full"
    bank: str | None = None
    gradient: bool = False

    def __post_init__(self) -> None:
        if not self.gradient and not self.einsum.contracts:
            raise SpecError(f"{self.spec!r}: no axis is contracted")
        if self.weight is not None and self.weight_axes() is None:
            raise SpecError(f"{self.path}: {self.spec!r} has no operand that could be the weight of {self.weight}")
        if self.bank is not None and (self.weight_axes() is None or ACTIVE not in self.einsum.out):
            raise SpecError(f"{self.path}: {self.spec!r} has no weight, or no axis {ACTIVE}, for a bank of experts")
        if self.mask != "full" and not {"T", "S"} <= set(self.einsum.every):
            raise SpecError(f"{self.spec!r} is masked but has no query–key pairs T S")

    @property
    def einsum(self) -> Einsum:
        """The parsed spec."""
        return einsum(self.spec)

    def weight_axes(self) -> Letters | None:
        """The axes of the operand that carries no axis of the workload; None where both are activations."""
        return _weight_axes(self.spec)

    def factors(self, axes: Axes, masked: bool = False) -> list[Size]:
        """What multiplies to the FLOPs: 2 per multiply-add, and every axis once.

        `masked` counts only the query–key pairs that the mask keeps.
        """
        every = self.einsum.every
        if not masked or self.mask == "full":
            return [FLOPS_PER_MULTIPLY_ADD, *(axes[axis] for axis in every)]
        others = (axes[axis] for axis in every if axis not in ("T", "S"))
        return [FLOPS_PER_MULTIPLY_ADD, pairs(self.mask, axes["T"], axes["S"], axes.get(WINDOW)), *others]

    def flops(self, axes: Axes, masked: bool = False) -> Size:
        """FLOPs: the product of all factors."""
        return prod(self.factors(axes, masked))

    def dims(self, axes: Axes) -> Dims:
        """m × k × n and how many times.

        Rows are the left-only axes of the workload, or, where none is, all left-only ones; columns the right-only
        ones. What both operands and the result share, and the query heads that read one key head (G), repeat the
        product.
        """
        left, right, out = self.einsum.left, self.einsum.right, self.einsum.out
        alone = tuple(a for a in left if a in out and a not in right)
        rows = tuple(a for a in alone if a in workload.AXES) or alone
        columns = tuple(a for a in right if a in out and a not in left)
        contracted = tuple(a for a in left if a not in out)
        repeats = tuple(a for a in out if a not in rows and a not in columns)
        return Dims(size(axes, rows), size(axes, contracted), size(axes, columns), size(axes, repeats))

    def bits(self, axes: Axes, weights: int, activations: int) -> tuple[Size, Size, Size]:
        """Bits of the left operand, the right operand and the result, at so many bits per element of either kind.

        Of a bank, the weights of as many experts as there are tokens sent to one, each to another: the most that can
        be touched. What has nothing to do, as an encoder behind its source, reads nothing.
        """
        if any(isinstance(axes[axis], int) and axes[axis] == 0 for axis in self.einsum.every):
            return 0, 0, 0

        def taken(operand: Letters) -> Size:
            if not _is_weight(operand):
                return size(axes, operand) * activations
            return size(axes, operand) * weights * (self._touched(axes) if self.bank else 1)

        return taken(self.einsum.left), taken(self.einsum.right), taken(self.einsum.out)

    def parameters(self) -> tuple[Parameter, ...]:
        """The weight, if one operand is a weight, and the bias."""
        axes = self.weight_axes()
        if axes is None:
            return ()
        experts = (self.bank,) if self.bank else ()
        weight = Parameter(f"{self.weight or self.path}.weight", (*experts, *axes), bool(self.bank))
        if not self.bias:
            return (weight,)
        outputs = tuple(a for a in axes if a in self.einsum.out)
        return weight, Parameter(f"{self.path}.bias", (*experts, *outputs), bool(self.bank))

    def _touched(self, axes: Axes) -> Size:
        """Experts that a step reads at the most."""
        assert self.bank is not None
        return smaller(axes[self.bank], size(axes, (*(a for a in self.einsum.out if a in workload.AXES), ACTIVE)))

    def backward(self) -> tuple[Matmul, Matmul]:
        """The gradients of both operands: the same letters with the operands exchanged."""
        left, right, out = (" ".join(operand) for operand in (self.einsum.left, self.einsum.right, self.einsum.out))
        return (
            Matmul(f"{self.path}.grad_left", f"{out}, {right} -> {left}", mask=self.mask, gradient=True),
            Matmul(f"{self.path}.grad_right", f"{left}, {out} -> {right}", mask=self.mask, gradient=True),
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
    `weight` and `bias` are the axes of its parameters. `sums`: it only adds, so its backward pass needs no operand.
    `module`: whose parameters it reads, where they are not its own (one norm that several lines share).
    """

    path: str
    spec: str
    weight: str = ""
    bias: str = ""
    sums: bool = False
    module: str | None = None

    def __post_init__(self) -> None:
        for operand in filter(None, (self.weight, self.bias)):
            if not set(stored(self.path, operand)) <= set(letters(self.spec)):
                raise SpecError(f"{self.path}: parameters {operand!r} do not fit the result {self.spec!r}")

    def parameters(self) -> tuple[Parameter, ...]:
        """Scale and shift, where the part has them."""
        named = (("weight", self.weight), ("bias", self.bias))
        owner = self.module or self.path
        return tuple([Parameter(f"{owner}.{name}", letters(axes)) for name, axes in named if axes])

    def elements(self, axes: Axes) -> Size:
        """Elements of the result."""
        return size(axes, letters(self.spec))


@dataclass(frozen=True, slots=True)
class Idle:
    """A line that is stored and never run: its parameters count, its work does not."""

    of: Matmul | Pointwise

    @property
    def path(self) -> str:
        """Where it would run."""
        return self.of.path

    def parameters(self) -> tuple[Parameter, ...]:
        """Those of the line."""
        return self.of.parameters()


Line: TypeAlias = Matmul | Table | State | Pointwise | Idle
LineT = TypeVar("LineT", Matmul, Table, State, Pointwise)
