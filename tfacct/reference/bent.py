"""The reference model's network whose activation has learned numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import FeedForward, Work


class Xielu(Work):
    """xIELU: a square above 0, an exponential below, each bent by a learned number (transformers' XIELUActivation)."""

    BETA, LEAST = 0.5, -1e-6

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        bent = x if gate is None else gate
        above, below = nn.functional.softplus(self.weight), self.BETA + nn.functional.softplus(self.bias)
        lower = torch.expm1(bent.clamp(max=self.LEAST)) - bent
        made = torch.where(bent > 0, above * bent.square(), lower * below) + bent * self.BETA
        return made if gate is None else made * x


class XieluFeedForward(FeedForward):
    """A network with that activation."""

    def __init__(self, part: parts.XieluFeedForward) -> None:
        super().__init__(part)
        self.act = Xielu()
