"""The reference model's learned weights of a result and of the stream that it joins (transformers'
MuseSparkResidualGate)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.reference.modules import Work

LEAST = 1e-3
"""What is left of a stream at least, before the root."""


class Weighed(Work):
    """A result times learned weights between 0 and 1, `temperature` under them."""

    def __init__(self, hidden: int, temperature: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.weight / self.temperature)


class Left(Work):
    """A stream times what those weights leave: √(1 − weight²)."""

    def __init__(self, gate: Weighed) -> None:
        super().__init__()
        self.gate = (gate,)  # whose weight is not this one's too

    def forward(self, x: Tensor) -> Tensor:
        (gate,) = self.gate
        numbers = gate.weight / gate.temperature
        left = torch.sigmoid(-numbers) * (1 + torch.sigmoid(numbers))
        return x * left.clamp(min=LEAST).sqrt()
