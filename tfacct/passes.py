"""FLOPs of several passes together, derived from a ledger: a training step's, and all steps of a decode."""

from __future__ import annotations

from tfacct.ledger import Ledger
from tfacct.notation import Axes, Size, halve
from tfacct.workload import Workload


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


def decode_flops(ledger: Ledger, *, batch: Size, prompt: Size, steps: Size) -> dict[str, Size]:
    """FLOPs of `steps` decode steps after a prompt, by product: step i has one new token and prompt + i keys.

    A product multiplies each of its axes once, so with one token it grows by the same amount from step to step, and
    the sum is steps · (first + last) / 2: at once for any number of steps, or a symbol.
    """

    def step(number: Size) -> dict[str, Size]:
        return ledger.flops(Workload(context=prompt + number, tokens=1, batch=batch).axes())

    first, last = step(1), step(steps)
    return {path: halve(steps * (first[path] + last[path])) for path in first}
