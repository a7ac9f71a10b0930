"""Optimizers: bytes of their state and of the temporary memory of their step, from `optimizers.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tfacct.base.errors import NotFoundError, nearest
from tfacct.base.record import record
from tfacct.ledger.torch_parameters import TorchParameter

FP32_BYTES = 4
BLOCK, SCALE, CODES, SMALL = 256, 4, 1024, 4096
"""bitsandbytes: elements that share a scale, its bytes, bytes of a table of codes, and the least elements of a tensor
whose state is quantized (`bitsandbytes.optim.optimizer`, min_8bit_size)."""
SCALARS = 32
"""Bytes of scalars during a factored update."""


class StepMemory(NamedTuple):
    """Temporary bytes of an optimizer step: `most`, and `least` if they depend on the order of the parameters."""

    most: int
    least: int


class OptimizerMemory(NamedTuple):
    """Bytes that an optimizer needs for the parameters of one device. `state`: including the `master_weights`.
    `update`: temporary bytes of its step; `uncertain`: by how many they may be fewer, depending on the order of the
    parameters."""

    state: int = 0
    master_weights: int = 0
    update: int = 0
    uncertain: int = 0


@record
class Optimizer:
    """An optimizer; `optimizers.toml` explains the fields."""

    name: str
    description: str = ""
    source: str = ""
    numbers: int = 0
    number_bytes: int | None = None
    factored: bool = False
    tensor_bytes: int = 0
    embeddings_fp32: bool = False
    matrices: Mapping[str, int] | None = None
    step: str | None = None
    copies: int = 1
    paged: bool = False

    @property
    def elementwise(self) -> bool:
        """True if an element's state and update depend on no other element, so that ranks can shard it anywhere."""
        return self.number_bytes is None and not self.factored and self.matrices is None and self.step != "one tensor"

    def tensor_state_bytes(self, tensor: TorchParameter, width: int) -> int:
        """Bytes of the state of one tensor, with `width` bytes per element."""
        if self.matrices is not None and tensor.hidden_matrix:
            return Optimizer("", numbers=self.matrices["numbers"]).tensor_state_bytes(tensor, width)
        if self._quantizes(tensor):
            return self.numbers * (tensor.elements + SCALE * -(-tensor.elements // BLOCK))
        factors = (tensor.rows_and_columns or tensor.elements) if self.factored else 0
        each = width if self.number_bytes is None else FP32_BYTES
        return each * (self.numbers * tensor.elements + factors) + self.tensor_bytes

    def state_bytes(self, tensors: Sequence[TorchParameter], width: int) -> int:
        """Bytes of the state of all tensors, with `width` bytes per element."""
        codes = min(self.numbers, 2) * CODES if any(map(self._quantizes, tensors)) else 0
        return codes + sum(tensor.copies * self.tensor_state_bytes(tensor, width) for tensor in tensors)

    def step_memory(self, tensors: Sequence[TorchParameter], width: int) -> StepMemory:
        """Temporary bytes of the step, in addition to weights, gradients and state."""
        return STEP_RULES[self.step](tensors, width, self.copies) if self.step and tensors else StepMemory(0, 0)

    def _quantizes(self, tensor: TorchParameter) -> bool:
        return self.number_bytes == 1 and tensor.elements >= SMALL and not (self.embeddings_fp32 and tensor.embedding)


@cache
def optimizers() -> dict[str, Optimizer]:
    """All optimizers by name."""
    import tomllib

    rows = tomllib.loads(Path(__file__).with_name("optimizers.toml").read_text(encoding="utf-8"))
    return {name: Optimizer(name, **row) for name, row in rows.items()}


def optimizer(name: str) -> Optimizer:
    """The optimizer of this name. Raises NotFoundError, which lists them."""
    if name not in optimizers():
        endings = [known for known in optimizers() if known.endswith(f"-{name}")]  # `8bit`
        near = None if endings else nearest(name, [known for known in optimizers() if known != "none"])
        raise NotFoundError(f"unknown optimizer {name!r}", near or f"known: {', '.join(endings or optimizers())}")
    return optimizers()[name]


def _all_weights(tensors: Sequence[TorchParameter], width: int, copies: int) -> StepMemory:
    """A foreach step copies all parameters at once."""
    bytes_ = copies * width * sum(tensor.copies * tensor.elements for tensor in tensors)
    return StepMemory(bytes_, bytes_)


def _one_tensor(tensors: Sequence[TorchParameter], width: int, copies: int) -> StepMemory:
    """Copies of one parameter, and one of the previous parameter, to which a loop variable still refers."""
    most = max(copies * tensor.elements + before for tensor, before in _neighbors(tensors))
    return StepMemory(width * most, width * copies * max(tensor.elements for tensor in tensors))


def _factored(tensors: Sequence[TorchParameter], width: int, copies: int) -> StepMemory:
    """torch's Adafactor: an estimate per element, one per row, column and matrix, and the previous estimate.

    The square of a vector also stays alive.
    """
    square = max((tensor.elements for tensor in tensors if len(tensor.shape) == 1), default=0)
    every = [(copies * tensor.elements + tensor.rows_and_columns, before) for tensor, before in _neighbors(tensors)]
    most = max(size + before for size, before in every) + square
    return StepMemory(width * most + SCALARS, width * max(size for size, _ in every))


def _factored_fp32(tensors: Sequence[TorchParameter], width: int, copies: int) -> StepMemory:
    """transformers' Adafactor: two fp32 tensors; in 16 bits, also copies of the gradient and of the parameter."""
    times = copies - 2 if width == FP32_BYTES else copies
    every = [(times * tensor.elements, tensor.rows_and_columns, before) for tensor, before in _neighbors(tensors)]
    most = max(size + max(factors, before) for size, factors, before in every)
    least = max(times * tensor.elements + tensor.rows_and_columns for tensor in tensors)
    return StepMemory(FP32_BYTES * most + SCALARS, FP32_BYTES * least)


def _orthogonalization(tensors: Sequence[TorchParameter], width: int, copies: int) -> StepMemory:  # noqa: ARG001
    """torch's Muon: an update, and in bf16 two iterates and two matmuls of the matrix with its transpose (shorter
    side)."""
    each = ((width + 4) * tensor.elements + 4 * min(tensor.shape) ** 2 for tensor in tensors if tensor.hidden_matrix)
    most = max(each)
    return StepMemory(most, most)


STEP_RULES: dict[str, Callable[[Sequence[TorchParameter], int, int], StepMemory]] = {
    "all weights": _all_weights,
    "one tensor": _one_tensor,
    "factored": _factored,
    "factored, fp32": _factored_fp32,
    "orthogonalization": _orthogonalization,
}


def _neighbors(tensors: Sequence[TorchParameter]) -> Iterator[tuple[TorchParameter, int]]:
    """Each matrix, and the most elements that a parameter before it can have.

    The order of the matrices is the same in all classes, but the places of vectors and routers differ. The two previous
    matrices and all vectors are therefore considered.
    """
    every = list(_in_order(tensors))
    vector = max((tensor.elements for tensor in every if len(tensor.shape) == 1), default=0)
    walk = [tensor for tensor in every if len(tensor.shape) > 1] or every
    for number, tensor in enumerate(walk):
        yield tensor, max(vector, *(before.elements for before in walk[max(number - 2, 0) : number]), 0)


def _in_order(tensors: Sequence[TorchParameter]) -> Iterator[TorchParameter]:
    """Parameters in the model's order, with every kind of layer twice, so that all neighbors occur."""
    for inside, group in groupby(tensors, key=lambda tensor: tensor.stack is not None):
        stacks = [list(each) for _, each in groupby(group, key=lambda tensor: tensor.stack)]
        for _ in range(2 if inside else 1):
            for stack in stacks:
                yield from stack
                if inside:
                    yield from stack
