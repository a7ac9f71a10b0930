"""FLOPs of several passes: forward, backward and recomputation of a training step, and all decode steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from tfacct.accounts.memory import largest_that_fits
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size, compressed_pairs, pairs
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import CHUNK, RATES, WINDOW, Matmul, Pointwise
from tfacct.ledger.workload import COMPRESSED, Workload

ATTENTION = "attn"
"""What the names of attention's parts end with, of self-attention and of attention to a source."""


def forward_flops(ledger: Ledger, at: Axes, *, masked: bool = False) -> Size:
    """FLOPs of one forward pass."""
    return ledger.total_flops(at, masked=masked)


def backward_flops(ledger: Ledger, at: Axes, *, masked: bool = False) -> Size:
    """FLOPs of one backward pass: two products for each of the forward pass (see `Matmul.backward`)."""
    return ledger.total_flops(at, masked=masked, backward=True)


def recomputed_flops(
    ledger: Ledger,
    at: Axes,
    *,
    masked: bool = False,
    attention: bool = False,
    keep: Callable[[str, Matmul], bool] = lambda _path, _line: True,
) -> Size:
    """FLOPs that full recomputation adds to a training step, of the products that `keep` is true of: those of every
    block's forward pass, except a last product whose result is only added. `attention`: only attention is run again,
    up to its last product.

    Checkpointing of blocks is Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174). The
    early stop is torch's (`torch.utils.checkpoint.set_checkpoint_early_stop`): a block stops running again once every
    tensor that the backward pass needs is there, and an addition needs none. So the last product of a pre-norm block is
    not run again. That of a post-norm block is, because its norm needs the result. The head and multi-token prediction
    heads are never run again.
    """
    return sum(flops for line, flops in _run_again(ledger, at, masked, attention) if keep(line.path, line))


def recomputed(ledger: Ledger, at: Axes, *, masked: bool = False, attention: bool = False) -> list[Size]:
    """The same product by product, in the order of `Ledger.products`: 0 for those that are not run again."""
    return [flops for _, flops in _run_again(ledger, at, masked, attention)]


def _run_again(ledger: Ledger, at: Axes, masked: bool, attention: bool) -> Iterator[tuple[Matmul, Size]]:
    """Every product with its FLOPs in a second forward pass of the blocks, or of their attention."""
    for group in ledger.settled(at, masked=masked).groups:
        axes = group.bound(at)
        products = [line for line in group.lines if isinstance(line, Matmul)]
        inside = [number for number, line in enumerate(products) if paths.parse(line.path).stack == paths.BLOCKS]
        again = {*inside[: len(inside) - _spared(group)]}
        if attention:
            parts = [paths.parse(line.path)._replace(leaf="") for line in products]
            again = {
                number
                for number in inside
                if parts[number].part.endswith(ATTENTION) and parts[number] in parts[number + 1 :]
            }
        for number, line in enumerate(products):
            yield line, group.count * line.flops(axes, masked) if number in again else 0


def _spared(group: Group) -> int:
    """Number of products at a block's end whose results the backward pass does not need: 1 or 0."""
    after = takewhile(lambda line: not isinstance(line, Matmul), reversed(group.lines))
    return int(all(line.sums for line in after if isinstance(line, Pointwise)))


def decode_flops(ledger: Ledger, *, batch: Size, prompt: Size, steps: Size, source: Size = 0) -> dict[str, Size]:
    """FLOPs of `steps` decode steps after a prompt, by path of the product.

    Step i has one new token and prompt + i keys; all steps see the same `source`. A product is linear in its keys, so
    its FLOPs with one key, times the keys of all steps together, are those of all steps. That takes the same time for
    any number of steps, and works for a symbol. If a step chooses between two ways to run the model, the second is
    chosen from some number of keys on.
    """

    def chosen(step: int) -> Ledger:
        return ledger.settled(Workload(context=prompt + step, tokens=1, batch=batch, source=source).axes())

    if isinstance(prompt, int) and prompt == 0 and steps and any(CHUNK in group.axes for group in ledger.groups):
        # The very first token has nothing before it, and a recurrence in chunks takes it as a chunk.
        first = _alike(ledger, batch, 0, 1, source)
        rest = decode_flops(ledger, batch=batch, prompt=1, steps=steps - 1, source=source)
        return {path: flops + rest[path] for path, flops in first.items()}
    way, alike = ledger.ways[0], steps
    if len(ledger.ways) > 1:
        way = chosen(1)
        alike = largest_that_fits(lambda step: int(chosen(step) is not way), 0, steps)
    found = _alike(way, batch, prompt, alike, source)
    if alike == steps:
        return found
    rest = decode_flops(ledger, batch=batch, prompt=prompt + alike, steps=steps - alike, source=source)
    return {path: flops + rest[path] for path, flops in found.items()}


def _alike(ledger: Ledger, batch: Size, prompt: Size, steps: Size, source: Size) -> dict[str, Size]:
    """FLOPs of decode steps that all run the same lines, by path of the product."""
    found: dict[str, Size] = {}
    for product in ledger.products(Workload(context=prompt + 1, tokens=1, batch=batch, source=source).axes()):
        every = product.line.einsum.every
        entries = next((kind for kind, axis in COMPRESSED["entries"].items() if axis in every), None)
        if entries is not None:
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
    """Number of keys that the tokens of all steps see: the pairs that a causal mask keeps of their positions."""
    return pairs("causal", steps, prompt + steps, window)
