"""Addition of a sublayer's result to the residual stream in the reference model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import Add, Scale, Work, through
from tfacct.reference.part_module import family_module

LEAST = 1e-3
"""Smallest value under the root."""


class Lerp(Work):
    """A result times learned weights between 0 and 1, divided by `temperature`."""

    def __init__(self, hidden: int, temperature: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.weight / self.temperature)


class Left(Work):
    """A residual stream times the complement of these weights: √(1 − weight²)."""

    def __init__(self, gate: Lerp) -> None:
        super().__init__()
        self.gate = (gate,)  # whose weight is not also this module's

    def forward(self, x: Tensor) -> Tensor:
        (gate,) = self.gate
        numbers = gate.weight / gate.temperature
        left = torch.sigmoid(-numbers) * (1 + torch.sigmoid(numbers))
        return x * left.clamp(min=LEAST).sqrt()


class TanhGate(Work):
    """A result times the tanh of a learned scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.tanh()


class Residual(Add):
    """A result added to the residual stream, each after a constant factor or a gate, if any."""

    def __init__(self, part: parts.Residual) -> None:
        super().__init__()
        self.gate: nn.Module | None = None
        self.stream_gate: nn.Module | None = None
        if isinstance(part, parts.GatedResidual):
            self.gate = TanhGate()
        if isinstance(part, parts.LerpResidual):
            self.gate = Lerp(part.hidden, part.temperature)
            self.stream_gate = Left(self.gate)
        self.stream_scale = None if part.stream is None else Scale(part.stream)
        self.scale = None if part.factor is None else Scale(part.factor)
        self.sum_scale = None if part.after is None else Scale(part.after)

    def forward(self, stream: Tensor, result: Tensor) -> Tensor:
        stream = through(self.stream_gate, through(self.stream_scale, stream))
        result = through(self.scale, through(self.gate, result))
        return through(self.sum_scale, super().forward(stream, result))


def residual(part: parts.Residual) -> Residual:
    """Module of an addition to the residual stream."""
    made: type[Residual] = family_module(part) or Residual
    return made(part)
