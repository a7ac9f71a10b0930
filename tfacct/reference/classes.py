"""The reference model's pooler and classification head."""

from __future__ import annotations

from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.modules import Activation, Add, LayerNorm, Linear, through


class Pooler(Linear):
    """One vector per sequence, from its first or last position or the mean of all positions; or one per position."""

    def __init__(self, part: parts.Pooler, last: bool) -> None:
        super().__init__(part.hidden, part.hidden, bias=part.bias)
        self.reads, self.last = part.reads, last
        self.act = Activation(part.activation)
        self.norm = None
        if part.norm_eps is not None:
            self.norm = LayerNorm((part.hidden,), part.norm_eps, bias=part.norm_shift)

    def forward(self, x: Tensor) -> Tensor:
        if self.reads == "each":
            x = x[:, -1:] if self.last else x
        elif self.reads == "mean":
            x = x.mean(dim=1)
        else:
            x = x[:, 0 if self.reads == "first" else -1]
        return through(self.norm, self.act(super().forward(x)))


class Classes(Linear):
    """Classification scores: for all positions, the last one, the pooled vector or, without pooling, the first one."""

    def __init__(self, part: parts.Classes, last: bool) -> None:
        super().__init__(part.hidden, part.classes, bias=part.bias)
        self.last, self.pooled = last and not part.pooled, part.pooled
        self.taught = Linear(part.hidden, part.classes, bias=part.bias) if part.taught else None
        self.mean = Add() if part.taught else None

    def forward(self, x: Tensor) -> Tensor:
        if self.taught is not None and self.mean is not None:
            return self.mean(super().forward(x[:, 0]) / 2, self.taught(x[:, 1]) / 2)
        if self.pooled and x.dim() > 2:
            x = x[:, 0]
        return super().forward(x[:, -1:] if self.last else x)
