"""The reference model's differential attention.

Shapes: heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tfacct.families.rare import diffllama
from tfacct.reference.attention import Attention, Softmax
from tfacct.reference.modules import Product, Work
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


def halves(heads: Tensor) -> tuple[Tensor, ...]:
    """The first half of heads, and the second."""
    return torch.unflatten(heads, 1, (2, heads.shape[1] // 2)).unbind(1)  # `chunk` compares the sizes of the halves


class Lambda(Work):
    """Elementwise product of two learned vectors: the weight is lambda_q of the transformers class, the bias its
    lambda_k."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(size)), nn.Parameter(torch.empty(size))

    def forward(self) -> Tensor:
        return self.weight * self.bias


class Difference(Work):
    """Result of the first half of the heads, minus a share of that of the second half."""

    def forward(self, read: Tensor, share: Tensor) -> Tensor:
        first, second = halves(read)
        return first - share * second


class PairNorm(Work):
    """RMSNorm without weight over both vectors of a pair of heads."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, pairs: Tensor) -> Tensor:
        """Of shape (batch, pairs, tokens, 2, head size)."""
        wide = pairs.float() if pairs.dtype == torch.bfloat16 else pairs
        square = wide.square().flatten(3).mean(-1, keepdim=True)
        root = (square.unsqueeze(3).expand(-1, -1, -1, 2, -1) + self.eps).rsqrt()
        return (wide * root).to(pairs.dtype)


class DifferentialAttention(Attention):
    """Attention that runs twice, once over each half of the values. `number`: index of its layer."""

    number = 0

    def __init__(
        self, part: diffllama.DifferentialAttention, angles: Angles | None, *, fused: bool, keep_all: bool
    ) -> None:
        super().__init__(part, angles, fused=fused, keep_all=keep_all)
        self.second_scores, self.second_softmax = Product(part.group), Softmax(self.scale)
        self.second_values = Product(part.group)
        self.first_lambda, self.second_lambda = Lambda(part.head_dim), Lambda(part.head_dim)
        self.difference, self.pair_norm = Difference(), PairNorm(part.eps)

    def _of_all(self, q: Tensor, k: Tensor, v: Tensor, step: Step, old: int) -> Tensor:
        first, second = (torch.cat((half, half), dim=1) for half in halves(v))
        if self.fused:
            read = [self._fused(q, k, half, step, old) for half in (first, second)]
        else:
            mask = self._mask(step, old)
            read = [
                self.values(self.softmax(self.scores(q, k.transpose(2, 3)), mask), first),
                self.second_values(self.second_softmax(self.second_scores(q, k.transpose(2, 3)), mask), second),
            ]
        constant = 0.8 - 0.6 * math.exp(-0.3 * self.number)
        share = self.first_lambda().sum(0).exp() - self.second_lambda().sum(0).exp() + constant
        pairs: Tensor = self.pair_norm(self.difference(torch.stack(read, dim=3), share)) * (1 - constant)
        return pairs.flatten(3)
