"""The reference model's parts of ZAYA1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.families.rare import zaya
from tfacct.reference import residual
from tfacct.reference.modules import Tokens, Work


class Affine(Work):
    """Learned numbers are added, and others multiply the sum (ZayaResidualScaling)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(hidden)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.bias) * self.weight


class AffineEmbedding(Tokens):
    """Token embedding whose rows are scaled and shifted."""

    def __init__(self, part: zaya.AffineEmbedding) -> None:
        super().__init__(part)
        self.shift = Affine(part.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        rows: Tensor = self.shift(super().forward(tokens))
        return rows


class AffineResidual(residual.Residual):
    """A result and the stream, both scaled and shifted, added."""

    def __init__(self, part: zaya.AffineResidual) -> None:
        super().__init__(part)
        self.gate, self.stream_gate = Affine(part.hidden), Affine(part.hidden)
