"""The torch module of Apertus' MLP, with learned parameters in its activation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.families import llama
from tfacct.reference.modules import FeedForward, Work


class Xielu(Work):
    """xIELU: quadratic above 0, exponential below, each times a learned parameter (transformers' XIELUActivation)."""

    BETA, LEAST = 0.5, -1e-6

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        read = x if gate is None else gate
        above, below = nn.functional.softplus(self.weight), self.BETA + nn.functional.softplus(self.bias)
        lower = torch.expm1(read.clamp(max=self.LEAST)) - read
        made = torch.where(read > 0, above * read.square(), lower * below) + read * self.BETA
        return made if gate is None else made * x


class XieluFeedForward(FeedForward):
    """An MLP with xIELU."""

    has_activation = True

    def __init__(self, part: llama.XieluFeedForward) -> None:
        super().__init__(part)
        self.act = Xielu()
