"""FLOPs of forward, backward and recomputation in a training step, and of all decode steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Literal

from tfacct.accounts.memory import largest_that_fits
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size, axis_names, compressed_pairs, pairs, size
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import Group, Keep, Ledger, every_matmul
from tfacct.ledger.lines import RATES, WINDOW, Line, Matmul, Pointwise
from tfacct.ledger.workload import COMPRESSED, Workload

ATTENTION = ("attn", "delta", "lightning")
"""Names of attention parts, also of linear attention."""


How = Literal["full", "attention", "selective", "none"]
"""Recomputation of whole layers, of attention modules, or only of scores to values (Megatron's core_attn)."""


def recomputed_flops(
    ledger: Ledger,
    at: Axes,
    how: How = "full",
    *,
    masked: bool = False,
    keep: Keep = every_matmul,
) -> Size:
    """FLOPs that recomputation adds to a training step, of the matmuls selected by `keep`.

    Full recomputation runs each layer's forward pass again, except a last matmul whose result is only added.
    "attention": the same of each layer's attention alone.

    Activation checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174). torch
    stops early (`torch.utils.checkpoint.set_checkpoint_early_stop`), once all tensors for backward are available, and
    an addition needs none. So the last matmul of a pre-norm layer is not recomputed, unless a dropout of its result
    saves a mask; that of a post-norm layer is, because its norm needs the result. The same holds for attention, if the
    dropout or the norm is in its module. The head and multi-token prediction heads are never recomputed.
    """
    return sum(flops for line, flops in _recomputation(ledger, at, how, masked) if keep(line.path, line))


def recomputed(ledger: Ledger, at: Axes, how: How = "full", *, masked: bool = False) -> list[Size]:
    """Recomputed FLOPs of each matmul, in the order of `Ledger.products`; 0 if it is not recomputed."""
    return [flops for _, flops in _recomputation(ledger, at, how, masked)]


def recomputed_elements(ledger: Ledger, at: Axes, how: How, keep: Callable[[Pointwise], bool]) -> Size:
    """Elements of the pointwise work that runs again, where `keep` selects it."""
    return sum(
        group.count * size(group.bound(at), axis_names(line.spec))
        for group in ledger.groups
        for part in _recomputed_parts(group, how)
        for line in part
        if isinstance(line, Pointwise) and keep(line)
    )


def is_score(line: Line) -> bool:
    """True for attention scores and values, False for projections."""
    return isinstance(line, Matmul) and paths.component_of(line) == paths.SCORES


def _recomputation(ledger: Ledger, at: Axes, how: How, masked: bool) -> Iterator[tuple[Matmul, Size]]:
    """Every matmul with its FLOPs in the recomputation."""
    for group in ledger.settled(at, masked=masked).groups:
        axes, parts = group.bound(at), _recomputed_parts(group, how)
        runs = {line.path for part in parts for line in (part if how == "selective" else _needed(part))}
        for line in group.lines:
            if isinstance(line, Matmul):
                yield line, group.count * line.flops(axes, masked) if line.path in runs else 0


def _recomputed_parts(group: Group, how: How) -> Iterator[list[Line]]:
    """Lines of a layer, of each attention part of it with the operations on its result in its module, or of its scores
    and values."""
    layer = [line for line in group.lines if paths.parse(line.path).stack == paths.BLOCKS]
    if how == "full":
        yield layer
    elif how == "selective":
        yield [line for line in layer if is_score(line)]
    if how != "attention":
        return
    for name in ATTENTION:
        parts = {name, *(f"{name}_add" for line in layer if isinstance(line, Pointwise) and line.needs_result)}
        yield [line for line in layer if paths.parse(line.path).part in parts]


def _needed(lines: list[Line]) -> list[Matmul]:
    """Matmuls that run again with these lines: all but the last, if backward needs nothing from there on."""
    after = takewhile(lambda line: not isinstance(line, Matmul), reversed(lines))
    products = [line for line in lines if isinstance(line, Matmul)]
    return products[:-1] if all(line.saves_nothing for line in after if isinstance(line, Pointwise)) else products


def decode_flops(
    ledger: Ledger, *, batch: Size, prompt: Size, steps: Size, source: Size = 0, masked: bool = False
) -> dict[str, Size]:
    """FLOPs of `steps` decode steps after a prompt of at least one token, by path.

    Step i has one new token and prompt + i keys; all steps see the same `source`. Matmuls are linear in the keys, so
    the FLOPs of all steps are those with one key times the sum of keys over all steps. This takes constant time for any
    number of steps, and also works for symbols. If the model has two alternatives, steps use the second one from some
    number of keys on.
    """

    def chosen(step: int) -> Ledger:
        at = Workload(context=prompt + step, tokens=1, batch=batch, source=source).axes()
        return ledger.settled(at, masked=masked)

    way, alike = ledger.ways[0], steps
    if len(ledger.ways) > 1:
        way = chosen(1)
        alike = largest_that_fits(lambda step: int(chosen(step) is not way), 0, steps)
    found = _flops_of_equal_steps(way, batch, prompt, alike, source, masked)
    if alike == steps:
        return found
    left = steps - alike
    rest = decode_flops(ledger, batch=batch, prompt=prompt + alike, steps=left, source=source, masked=masked)
    return {path: flops + rest[path] for path, flops in found.items()}


def _flops_of_equal_steps(
    ledger: Ledger, batch: Size, prompt: Size, steps: Size, source: Size, masked: bool
) -> dict[str, Size]:
    """FLOPs of decode steps with the same ledger, by path."""
    found: dict[str, Size] = {}

    def products(tokens: Size) -> list[Product]:
        return ledger.products(Workload(prompt + tokens, tokens, batch, source=source).axes(), masked=masked)

    first = products(1)
    for product, of_all in zip(first, products(steps) if masked else first, strict=True):
        every = product.line.einsum.every
        entries = next((kind for kind, axis in COMPRESSED["entries"].items() if axis in every), None)
        if masked and product.line.mask != "full":  # the steps see the pairs that one pass over their tokens sees
            all_steps = of_all.forward
        elif entries is not None:
            one = product.count * product.line.flops({**product.axes, COMPRESSED["entries"][entries]: 1})
            all_steps = one * compressed_pairs(steps, prompt + steps, product.axes[RATES[entries]])
        elif "S" in every:
            one = product.count * product.line.flops({**product.axes, "S": 1})
            all_steps = one * _keys_of_steps(prompt, steps, product.axes.get(WINDOW))
        else:
            all_steps = steps * product.forward
        found[product.path] = found.get(product.path, 0) + all_steps
    return found


def _keys_of_steps(prompt: Size, steps: Size, window: Size | None) -> Size:
    """Sum over all steps of the keys that the new token sees: the visible pairs of a causal mask."""
    return pairs("causal", steps, prompt + steps, window)
