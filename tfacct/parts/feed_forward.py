"""The feed-forward network: two matrices around an activation, or three when it is gated (SwiGLU, GeGLU)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.ledger import Line, Matmul, Pointwise
from tfacct.notation import Size


@dataclass(frozen=True, slots=True)
class FeedForward:
    """`hidden` → `width` → `hidden`. Gated: the activation of one projection multiplies another."""

    hidden: Size
    width: Size
    gated: bool = False
    bias: bool = False

    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "F": "feed-forward width"}

    def axes(self) -> dict[str, Size]:
        """D and F."""
        return {"D": self.hidden, "F": self.width}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The projections, and the activation (with the gate's multiplication, where there is one)."""
        gate = Matmul(f"{at}.gate_proj", "B T D, D F -> B T F", bias=self.bias)
        return (
            *((gate,) if self.gated else ()),
            Matmul(f"{at}.up_proj", "B T D, D F -> B T F", bias=self.bias),
            Pointwise(f"{at}.act", "B T F"),
            Matmul(f"{at}.down_proj", "B T F, F D -> B T D", bias=self.bias),
        )
