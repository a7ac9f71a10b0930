"""Addition of a sublayer's result to the residual stream in the reference model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import Add, Scale, Work
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
        factors = part.stream, part.factor, part.after
        self.stream_scale, self.scale, self.sum_scale = (
            factor if factor is None else Scale(factor) for factor in factors
        )

    def forward(self, stream: Tensor, result: Tensor) -> Tensor:
        for scale in (self.stream_scale, self.stream_gate):
            stream = stream if scale is None else scale(stream)
        for scale in (self.gate, self.scale):
            result = result if scale is None else scale(result)
        total = super().forward(stream, result)
        return total if self.sum_scale is None else self.sum_scale(total)


def residual(part: parts.Residual) -> Residual:
    """Module of an addition to the residual stream."""
    made: type[Residual] = family_module(part) or Residual
    return made(part)
