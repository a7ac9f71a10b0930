"""What an optimizer's step holds beside weights, gradients and its own state, while it updates the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

FULL = 4
"""Bytes of a number in fp32."""
SCALARS = 32
"""Bytes of the few single numbers beside an update."""


class Parameter(NamedTuple):
    """A parameter as the class stores it: `copies` tensors of this shape.

    `stack`: the number of the blocks' kind, None outside the blocks. `table`: it is an embedding's.
    """

    shape: tuple[int, ...]
    copies: int = 1
    stack: int | None = None
    table: bool = False

    @property
    def elements(self) -> int:
        """Number of elements of one tensor."""
        return prod(self.shape)

    @property
    def edges(self) -> int:
        """Number of rows and columns of all its matrices; 0 of a vector."""
        return sum(self.elements // side for side in self.shape[-2:]) if len(self.shape) > 1 else 0

    @property
    def hidden(self) -> bool:
        """True of a matrix in a block, which torch.optim.Muon takes alone."""
        return self.stack is not None and len(self.shape) == 2


class Held(NamedTuple):
    """Bytes held by a step: `most`, and `least` where the order of the parameters decides."""

    most: int
    least: int


class Holding(NamedTuple):
    """What a step holds, in words, and for parameters in the model's order, whose elements take so many bytes."""

    words: str
    of: Callable[[Sequence[Parameter], int], Held]


def copies(times: int) -> Holding:
    """Copies of all parameters at once, which a foreach step makes."""

    def holds(tensors: Sequence[Parameter], width: int) -> Held:
        bytes_ = times * width * sum(tensor.copies * tensor.elements for tensor in tensors)
        return Held(bytes_, bytes_)

    return Holding("a copy of all weights" if times == 1 else f"{times} copies of all weights", holds)


def one_by_one(times: int) -> Holding:
    """Copies of one parameter beside one of the parameter before it, which a loop's variable still names."""

    def holds(tensors: Sequence[Parameter], width: int) -> Held:
        most = max(times * own.elements + before for own, before in _neighbours(tensors))
        return Held(width * most, width * times * max(tensor.elements for tensor in tensors))

    return Holding(f"{times} copies of the largest tensor, and one of the tensor before", holds)


def _factors(tensors: Sequence[Parameter], width: int) -> Held:
    """torch's Adafactor: an estimate of each element, one of each row, column and matrix, and the estimate before.

    A vector's square stays as well.
    """
    square = max((tensor.elements for tensor in tensors if len(tensor.shape) == 1), default=0)
    every = [(_with_factors(1, own), before) for own, before in _neighbours(tensors)]
    most = max(own + before for own, before in every) + square
    return Held(width * most + SCALARS, width * max(own for own, _ in every))


def _factors_full(tensors: Sequence[Parameter], width: int) -> Held:
    """transformers' Adafactor: two tensors in fp32; in 16 bits, copies of the gradient and of the parameter too."""
    times = 2 if width == FULL else 4
    least = max(_with_factors(times, tensor) for tensor in tensors)
    most = max(max(_with_factors(times, own), times * own.elements + before) for own, before in _neighbours(tensors))
    return Held(FULL * most + SCALARS, FULL * least)


def _iterations(tensors: Sequence[Parameter], width: int) -> Held:
    """torch's Muon: an update, and in bf16 two iterates and two products of a matrix's shorter side with itself."""
    each = ((width + 4) * tensor.elements + 4 * min(tensor.shape) ** 2 for tensor in tensors if tensor.hidden)
    most = max(each, default=0)
    return Held(most, most)


FACTORS = Holding("a copy of the largest tensor, and one of the tensor before", _factors)
FACTORS_FULL = Holding(
    "in fp32, 4 copies of the largest tensor, 2 where weights are fp32; one can be of the tensor before", _factors_full
)
ITERATIONS = Holding("for the largest matrix r × c, (w + 4) · r · c + 4 · min(r, c)²", _iterations)


def _with_factors(times: int, tensor: Parameter) -> int:
    return times * tensor.elements + tensor.edges


def _neighbours(tensors: Sequence[Parameter]) -> Iterator[tuple[Parameter, int]]:
    """Each matrix, and the most elements of what can stand before it.

    The order of the products is the same in all classes, but vectors and routers stand here or there between them: so
    the two matrices before are asked, and all vectors.
    """
    every = list(_in_order(tensors))
    vector = max((tensor.elements for tensor in every if len(tensor.shape) == 1), default=0)
    walk = [tensor for tensor in every if len(tensor.shape) > 1] or every
    for number, own in enumerate(walk):
        yield own, max(vector, *(before.elements for before in walk[max(number - 2, 0) : number]), 0)


def _in_order(tensors: Sequence[Parameter]) -> Iterator[Parameter]:
    """Parameters in the model's order, every kind of block twice: whatever is beside another is here too."""
    for inside, group in groupby(tensors, key=lambda tensor: tensor.stack is not None):
        stacks = [list(each) for _, each in groupby(group, key=lambda tensor: tensor.stack)]
        for _ in range(1 + inside):
            for stack in stacks:
                yield from stack
                if inside:
                    yield from stack
