"""What mixers of the reference model share, written as it runs there, over shapes alone.

Each of these follows its module in tfacct/reference line by line: which names hold a tensor says how long it is there.
"""

from __future__ import annotations

from typing import Any

from tfacct.shapes.eager import Tensor, noted
from tfacct.shapes.operations import Operations

INDEX = 8
"""Bytes of an index."""


def called(module: Any, *given: Any) -> Any:
    """Run a module, which holds what it is given until it is done."""
    return module(*given)


def by_head(ops: Operations, x: Tensor, heads: int, size: int) -> Tensor:
    """(batch, heads, tokens, size) of rows."""
    return ops.transpose(ops.unflatten(x, 2, (heads, size)), 1, 2)


def copied(ops: Operations, x: Tensor) -> Tensor:
    """A copy that lies as `x` does: a view would hold all of what that is one of."""
    return noted(ops.like(x), (x,), lambda grads: grads)


def activated(ops: Operations, name: str, x: Tensor) -> Tensor:
    """An activation."""
    if name == "relu2":
        return ops.square(ops.relu(x))
    return ops.relu(x) if name in ("relu", "tanh") else ops.silu(x)


class Convolution:
    """Depthwise convolution over the last tokens."""

    def __init__(self, ops: Operations, at: str, channels: int, kernel: int, *, bias: bool) -> None:
        self.ops, self.at, self.channels, self.kernel, self.bias = ops, at, channels, kernel, bias

    def over(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Convolved tokens, and the last ones."""
        ops, (batch, tokens, channels) = self.ops, x.shape
        before = ops.new((batch, self.kernel, channels))
        seen = ops.cat((before, x), 1)
        out = called(self.forward, ops.narrow(seen, 1, self.kernel - 1 + tokens))
        last = ops.transpose(ops.narrow(seen, 1, self.kernel), 1, 2)
        return out, copied(ops, last)

    def forward(self, x: Tensor) -> Tensor:
        ops, (batch, there, channels) = self.ops, x.shape
        tokens = there - self.kernel + 1
        place = self._places(tokens)
        windows = ops.reshape(self._chosen(x, place), batch, tokens, self.kernel, channels)
        by_channel = ops.reshape(ops.permute(windows, 3, 0, 1, 2), channels, batch * tokens, self.kernel)
        weight = ops.parameter(f"{self.at}.weight", channels, self.kernel)
        sums = ops.matmul(by_channel, ops.unsqueeze(weight, -1))
        out = ops.permute(ops.reshape(sums, channels, batch, tokens), 1, 2, 0)
        return out if not self.bias else ops.add(out, ops.parameter(f"{self.at}.bias", channels))

    def _places(self, tokens: int) -> Tensor:
        ops = self.ops
        rows = ops.new((tokens, 1), INDEX)
        row = ops.new((1, self.kernel), INDEX)
        return ops.like(rows, row)

    def _chosen(self, x: Tensor, place: Tensor) -> Tensor:
        ops, was = self.ops, x.shape
        count = place.shape[0] * place.shape[1]
        made = ops.new((was[0], count, was[2]))
        index = place.bare()

        def back(_: Any) -> Any:
            nothing = ops.new(was)
            found = ops.new(was)
            del nothing
            assert index is not None
            return [found]

        return noted(made, (x,), back)


def decayed_sums(ops: Operations, added: Tensor, decay: Tensor) -> Tensor:
    """Sum behind each token, as a scan whose reach doubles in each round."""
    sums = added
    reach, tokens = 1, added.shape[1]
    while reach < tokens:
        rest = tokens - reach
        carried = ops.mul(ops.narrow(decay, 1, rest), ops.narrow(sums, 1, rest))
        sums = ops.cat((ops.narrow(sums, 1, reach), ops.add(ops.narrow(sums, 1, rest), carried)), 1)
        decay = ops.cat(
            (ops.narrow(decay, 1, reach), ops.mul(ops.narrow(decay, 1, rest), ops.narrow(decay, 1, rest))), 1
        )
        reach *= 2
    return sums
