"""Normalisation over the hidden size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tfacct.lines import Idle, Line, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part

SHARED = "shared_norm"
"""What the parameters of a norm that a whole block shares are called."""


@dataclass(frozen=True, slots=True)
class Norm(Part):
    """LayerNorm (scale and shift) or RMSNorm (scale only).

    `less_one`: what is stored is the scale less 1. No count depends on it. `shared`: it reads the scale and shift that
    all norms of its block share. Not `called`: they are stored, and nothing runs.
    """

    hidden: Size
    kind: Literal["layer", "rms"]
    eps: float = 1e-5
    less_one: bool = False
    shared: bool = False
    called: bool = True

    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One pointwise line."""
        module = f"{at.rpartition('.')[0]}.{SHARED}" if self.shared else None
        line = Pointwise(at, "B T D", weight="D", bias="D" if self.kind == "layer" else "", module=module)
        return (line if self.called else Idle(line),)
