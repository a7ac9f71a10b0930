"""Modules of keys made from several tokens, and of projections by groups of heads, which several models have."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.reference.modules import Work


class Bias(Work):
    """Weights of tokens, and what each place among those of a key adds to them."""

    def __init__(self, rate: int, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(rate, size))

    def forward(self, gates: Tensor) -> Tensor:
        return gates + self.bias


class Shares(Work):
    """Shares of tokens in a key, for each number by itself."""

    def forward(self, gates: Tensor) -> Tensor:
        return torch.softmax(gates, dim=2)


class Weighted(Work):
    """Numbers times their shares, or scores times their heads' weights."""

    def forward(self, x: Tensor, shares: Tensor) -> Tensor:
        return x * shares


class GroupedLinear(nn.Module):
    """Product of each group of heads with a matrix of its own; the weight is that of a linear layer."""

    def __init__(self, groups: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.groups, self.weight = groups, nn.Parameter(torch.empty(groups * outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Results side by side, (batch, tokens, groups · outputs), of groups of shape (batch, tokens, groups, size)."""
        batch, tokens, groups, size = x.shape
        each = torch.unflatten(self.weight, 0, (groups, self.weight.shape[0] // groups)).transpose(1, 2)
        out = x.reshape(batch * tokens, groups, size).transpose(0, 1) @ each
        return out.transpose(0, 1).reshape(batch, tokens, groups * each.shape[2])


def there_are(count: int) -> bool:
    """True if there are any; of a symbol there are."""
    return isinstance(count, torch.SymInt) or int(count) > 0
