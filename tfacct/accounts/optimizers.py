"""Optimizers: the bytes of what they keep for every parameter, and of what they hold while they update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfacct.base.errors import NotFoundError, nearest
from tfacct.base.record import record

COUNTER = 4
"""Bytes of the step that torch's AdamW counts for each tensor, in fp32."""
BLOCK, SCALE, CODES, SMALL = 256, 4, 1024, 4096
"""bitsandbytes: elements that share a scale, its bytes, bytes of a table of codes, and the least elements of a tensor
whose state is quantized (`bitsandbytes.optim.optimizer`, min_8bit_size)."""


class Parameter(NamedTuple):
    """A parameter as the class stores it: `copies` tensors of so many elements."""

    elements: int
    copies: int


@record
class Optimizer:
    """An optimizer. `state` is what it keeps for a tensor of so many elements, whose width is given in bytes; `held`,
    while all parameters are updated, for each of their bytes; `once`, for the whole model.

    `source`: who says so.
    """

    name: str
    about: str
    state: Callable[[int, int], int]
    source: str
    held: int = 0
    once: int = 0

    def states(self, tensors: Sequence[Parameter], width: int) -> int:
        """Bytes kept for all tensors, whose elements take `width` bytes."""
        return self.once + sum(tensor.copies * self.state(tensor.elements, width) for tensor in tensors)

    def update(self, tensors: Sequence[Parameter], width: int) -> int:
        """Bytes held while the parameters are updated, beside gradients and states."""
        return self.held * width * sum(tensor.copies * tensor.elements for tensor in tensors)


def _nothing(_elements: int, _width: int) -> int:
    return 0


def _eight_bits(moments: int) -> Callable[[int, int], int]:
    """`moments` of a byte per element and a scale per block; small tensors keep theirs in fp32."""

    def state(elements: int, _width: int) -> int:
        if elements < SMALL:
            return moments * 4 * elements
        return moments * (elements + SCALE * -(-elements // BLOCK))

    return state


TORCH, BNB = "torch.optim 2.13, measured", "bitsandbytes 0.4x, bitsandbytes.optim"
OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("adamw", "AdamW, fused", lambda n, w: 2 * w * n + COUNTER, TORCH),
        Optimizer("adamw-foreach", "AdamW, foreach", lambda n, w: 2 * w * n + COUNTER, TORCH, held=1),
        Optimizer("adamw-amsgrad", "AdamW with amsgrad, fused", lambda n, w: 3 * w * n + COUNTER, TORCH),
        Optimizer("adamw-8bit", "AdamW in 8 bits", _eight_bits(2), BNB, once=2 * CODES),
        Optimizer("lion-8bit", "Lion in 8 bits", _eight_bits(1), BNB, once=CODES),
        Optimizer("sgd", "SGD", _nothing, TORCH),
        Optimizer("sgd-momentum", "SGD with momentum, fused", lambda n, w: w * n, TORCH),
        Optimizer("none", "no optimizer", _nothing, "nothing is updated"),
    )
}
"""Optimizers by name. `adamw` is the fused one, which is Trainer's default (`adamw_torch_fused`)."""


def optimizer(name: str) -> Optimizer:
    """The optimizer of this name. Raises NotFoundError, which lists them."""
    if name not in OPTIMIZERS:
        known = f"known: {', '.join(OPTIMIZERS)}"
        raise NotFoundError(f"unknown optimizer {name!r}", nearest(name, OPTIMIZERS) or known)
    return OPTIMIZERS[name]
