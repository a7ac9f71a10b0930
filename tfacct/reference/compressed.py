"""Modules shared by several models: keys computed from several tokens, and projections by head groups."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.reference.modules import Work


class Bias(Work):
    """Weights of tokens, plus a bias per position within a key."""

    def __init__(self, rate: int, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(rate, size))

    def forward(self, gates: Tensor) -> Tensor:
        return gates + self.bias


class Shares(Work):
    """Shares of tokens in a key, elementwise."""

    def forward(self, gates: Tensor) -> Tensor:
        return torch.softmax(gates, dim=2)


class GroupedLinear(nn.Module):
    """Matmul of each head group with its own matrix; the weight is that of one linear layer."""

    def __init__(self, groups: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.groups, self.weight = groups, nn.Parameter(torch.empty(groups * outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Concatenated results, (batch, tokens, groups · outputs), for groups of shape (batch, tokens, groups,
        size)."""
        batch, tokens, groups, size = x.shape
        each = torch.unflatten(self.weight, 0, (groups, self.weight.shape[0] // groups)).transpose(1, 2)
        out = x.reshape(batch * tokens, groups, size).transpose(0, 1) @ each
        return out.transpose(0, 1).reshape(batch, tokens, groups * each.shape[2])


def there_are(count: int) -> bool:
    """True if there are any; always true for a symbol."""
    return isinstance(count, torch.SymInt) or int(count) > 0
