"""FLOPs of the passes of a training step, derived from a ledger."""

from __future__ import annotations

from tfacct.ledger import Ledger
from tfacct.notation import Axes, Size


def forward_flops(ledger: Ledger, at: Axes, *, masked: bool = False) -> Size:
    """FLOPs of the forward pass."""
    return ledger.total_flops(at, masked=masked)


def backward_flops(ledger: Ledger, at: Axes, *, masked: bool = False) -> Size:
    """FLOPs of the backward pass: two products for each of the forward pass."""
    return ledger.total_flops(at, masked=masked, backward=True)


def recomputed_flops(ledger: Ledger, at: Axes) -> Size:
    """FLOPs that full recomputation adds to a training step: every block's forward pass, less its last product.

    Autograd stops running a block again once it has every tensor that the backward pass needs, and nothing after
    the last product of a pre-norm block needs that product's result. The head is never run again.
    """
    again: dict[range, list[Size]] = {}
    for product in ledger.products(at):
        if "*" in product.path:
            again.setdefault(product.numbers, []).append(product.forward)
    return sum(sum(block[:-1]) for block in again.values())
