"""Optimizers: the bytes of what they keep for every parameter, and of what they hold while they update.

Every row was measured on real tensors: the bytes of its state, and the most bytes alive at any operator of its step.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.accounts.updates import (
    FACTORS,
    FACTORS_FULL,
    FULL,
    ITERATIONS,
    Held,
    Holding,
    Parameter,
    copies,
    one_by_one,
)
from tfacct.base.errors import NotFoundError, nearest
from tfacct.base.record import record

COUNTER = 4
"""Bytes of the step that torch's optimizers count for each tensor, in fp32; on the host, unless their step is fused."""
BLOCK, SCALE, CODES, SMALL = 256, 4, 1024, 4096
"""bitsandbytes: elements that share a scale, its bytes, bytes of a table of codes, and the least elements of a tensor
whose state is quantized (`bitsandbytes.optim.optimizer`, min_8bit_size)."""


@record
class Optimizer:
    """An optimizer. `source`: who says so.

    `moments`: numbers that it keeps for each element, as wide as the weight or of so many `bits`. `factored`: further
    ones for each row and column of a matrix, and each element of a vector. `counter`: bytes for each tensor.
    `full_tables`: the moments of embeddings are in fp32. `hidden`: another takes the matrices of the blocks. `holds`:
    what its step holds. `paged`: the moments are in memory that can be moved to the host.
    """

    name: str
    about: str
    source: str
    moments: int = 0
    bits: int | None = None
    factored: bool = False
    counter: int = 0
    full_tables: bool = False
    hidden: Optimizer | None = None
    holds: Holding | None = None
    paged: bool = False

    def state(self, tensor: Parameter, width: int) -> int:
        """Bytes kept for one tensor, whose elements take `width` bytes."""
        if self.hidden is not None and tensor.hidden:
            return self.hidden.state(tensor, width)
        if self._quantizes(tensor):
            return self.moments * (tensor.elements + SCALE * -(-tensor.elements // BLOCK))
        factors = (tensor.edges or tensor.elements) if self.factored else 0
        each = width if self.bits is None else FULL
        return each * (self.moments * tensor.elements + factors) + self.counter

    def states(self, tensors: Sequence[Parameter], width: int) -> int:
        """Bytes kept for all tensors, whose elements take `width` bytes."""
        codes = min(self.moments, 2) * CODES if any(map(self._quantizes, tensors)) else 0
        return codes + sum(tensor.copies * self.state(tensor, width) for tensor in tensors)

    def update(self, tensors: Sequence[Parameter], width: int) -> Held:
        """Bytes held while the parameters are updated, beside gradients and states."""
        return self.holds.of(tensors, width) if self.holds and tensors else Held(0, 0)

    def _quantizes(self, tensor: Parameter) -> bool:
        return self.bits == 8 and tensor.elements >= SMALL and not (self.full_tables and tensor.table)


TORCH, BNB, HF = "torch.optim 2.13", "bitsandbytes 0.50", "transformers 5.23"
MATRICES = Optimizer("muon", "Muon", TORCH, moments=1)
OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("adamw", "AdamW, fused", TORCH, 2, counter=COUNTER),
        Optimizer("adamw-foreach", "AdamW, foreach", TORCH, 2, counter=COUNTER, holds=copies(1)),
        Optimizer("adamw-for-loop", "AdamW, one tensor at a time", TORCH, 2, counter=COUNTER, holds=one_by_one(2)),
        Optimizer("adamw-amsgrad", "AdamW with amsgrad, fused", TORCH, 3, counter=COUNTER),
        Optimizer("adamw-8bit", "AdamW in 8 bits", BNB, 2, 8),
        Optimizer(
            "adamw-8bit-trainer", "AdamW in 8 bits, embeddings in 32", f"{BNB} under {HF}", 2, 8, full_tables=True
        ),
        Optimizer("adamw-32bit", "AdamW in 32 bits", BNB, 2, 32),
        Optimizer("paged-adamw-8bit", "AdamW in 8 bits, paged", BNB, 2, 8, paged=True),
        Optimizer("paged-adamw-32bit", "AdamW in 32 bits, paged", BNB, 2, 32, paged=True),
        Optimizer("lion-8bit", "Lion in 8 bits", BNB, 1, 8),
        Optimizer("lion-8bit-trainer", "Lion in 8 bits, embeddings in 32", f"{BNB} under {HF}", 1, 8, full_tables=True),
        Optimizer("lion-32bit", "Lion in 32 bits", BNB, 1, 32),
        Optimizer("paged-lion-8bit", "Lion in 8 bits, paged", BNB, 1, 8, paged=True),
        Optimizer("paged-lion-32bit", "Lion in 32 bits, paged", BNB, 1, 32, paged=True),
        Optimizer("ademamix-8bit", "AdEMAMix in 8 bits", BNB, 3, 8),
        Optimizer("adafactor", "Adafactor", TORCH, factored=True, counter=COUNTER, holds=FACTORS),
        Optimizer(
            "adafactor-transformers", "Adafactor", HF, 0, 32, factored=True, counter=COUNTER, holds=FACTORS_FULL
        ),
        Optimizer(
            "adafactor-transformers-beta1", "Adafactor with a first moment", HF, 1, 32,
            factored=True, counter=COUNTER, holds=FACTORS_FULL,
        ),
        Optimizer(
            "muon", "Muon for the blocks' matrices, AdamW, fused, for the rest", TORCH, 2,
            counter=COUNTER, hidden=MATRICES, holds=ITERATIONS,
        ),
        Optimizer("rmsprop", "RMSprop, foreach", TORCH, 1, counter=COUNTER, holds=copies(1)),
        Optimizer("adagrad", "Adagrad, foreach", TORCH, 1, counter=COUNTER, holds=copies(2)),
        Optimizer("adamax", "Adamax, foreach", TORCH, 2, counter=COUNTER, holds=copies(1)),
        Optimizer("nadam", "NAdam, foreach", TORCH, 2, counter=2 * COUNTER, holds=copies(1)),
        Optimizer("sgd", "SGD", TORCH),
        Optimizer("sgd-foreach", "SGD with weight decay, foreach", TORCH, holds=copies(1)),
        Optimizer("sgd-momentum", "SGD with momentum", TORCH, 1),
        Optimizer(
            "sgd-momentum-foreach", "SGD with momentum and weight decay, foreach", TORCH, 1, holds=copies(1)
        ),
        Optimizer("none", "no optimizer", "nothing is updated"),
    )
}  # fmt: skip
"""Optimizers by name. `adamw` is the fused one, which is Trainer's default (`adamw_torch_fused`); `adafactor` takes one
tensor at a time, torch's default. `sgd` and `sgd-momentum` hold nothing, fused, foreach or not, without weight decay,
and fused with it."""


def optimizer(name: str) -> Optimizer:
    """The optimizer of this name. Raises NotFoundError, which lists them."""
    if name not in OPTIMIZERS:
        known = f"known: {', '.join(OPTIMIZERS)}"
        near = nearest(name, OPTIMIZERS)
        raise NotFoundError(f"unknown optimizer {name!r}", f"{near} {known}" if near else known)
    return OPTIMIZERS[name]
