"""Normalisation over the hidden size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tfacct.lines import Line, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Norm(Part):
    """LayerNorm (scale and shift) or RMSNorm (scale only).

    `less_one`: what is stored is the scale less 1. No count depends on it.
    """

    hidden: Size
    kind: Literal["layer", "rms"]
    eps: float = 1e-5
    less_one: bool = False

    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One pointwise line."""
        return (Pointwise(at, "B T D", weight="D", bias="D" if self.kind == "layer" else ""),)
