"""FLOPs of several passes together, derived from a ledger: a training step's, and all steps of a decode."""

from __future__ import annotations

from itertools import takewhile

from tfacct.ledger import Group, Ledger
from tfacct.lines import WINDOW, Matmul, Pointwise
from tfacct.notation import Axes, Size, pairs
from tfacct.workload import Workload


def forward_flops(ledger: Ledger, at: Axes, *, masked: bool = False) -> Size:
    """FLOPs of the forward pass."""
    return ledger.total_flops(at, masked=masked)


def backward_flops(ledger: Ledger, at: Axes, *, masked: bool = False) -> Size:
    """FLOPs of the backward pass: two products for each of the forward pass."""
    return ledger.total_flops(at, masked=masked, backward=True)


def recomputed_flops(ledger: Ledger, at: Axes) -> Size:
    """FLOPs that full recomputation adds to a training step: every block's forward pass, but for a last product whose
    result is only added.

    Autograd stops running a block again once it has every tensor that the backward pass needs, and an addition needs
    none. So the last product of a pre-norm block is not run again; that of a post-norm block is, its norm needs the
    result. The head is never run again, nor are layers that foresee further tokens.
    """
    again: Size = 0
    for group in ledger.groups:
        axes = group.bound(at)
        block = [line.flops(axes) for line in group.lines if isinstance(line, Matmul) and "blocks.*." in line.path]
        again += group.count * sum(block[: len(block) - _spared(group)])
    return again


def _spared(group: Group) -> int:
    """Products at a block's end whose results the backward pass does not need: one, or none."""
    after = takewhile(lambda line: not isinstance(line, Matmul), reversed(group.lines))
    return int(all(line.sums for line in after if isinstance(line, Pointwise)))


def decode_flops(ledger: Ledger, *, batch: Size, prompt: Size, steps: Size, source: Size = 0) -> dict[str, Size]:
    """FLOPs of `steps` decode steps after a prompt, by product: step i has one new token and prompt + i keys, and all
    see the same `source`.

    A product multiplies each of its axes once, so what it costs with one key times the keys of all steps is what all
    steps cost: at once for any number of steps, or a symbol.
    """
    found: dict[str, Size] = {}
    for product in ledger.products(Workload(context=prompt + 1, tokens=1, batch=batch, source=source).axes()):
        if "S" in product.line.einsum.every:
            one = product.count * product.line.flops({**product.axes, "S": 1})
            all_steps = one * _keys_of_steps(prompt, steps, product.axes.get(WINDOW))
        else:
            all_steps = steps * product.forward
        found[product.path] = found.get(product.path, 0) + all_steps
    return found


def _keys_of_steps(prompt: Size, steps: Size, window: Size | None) -> Size:
    """Keys that the tokens of all steps see: the pairs that a causal mask keeps of their positions."""
    return pairs("causal", steps, prompt + steps, window)
