"""The feed-forward network: two matrices around an activation, or three when it is gated (SwiGLU, GeGLU)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class FeedForward(Part):
    """`hidden` → `width` → `hidden`. Gated: the activation of one projection multiplies another.

    `activation` is the name configs use. No count depends on it.
    """

    hidden: Size
    width: Size
    gated: bool = False
    bias: bool = False
    activation: str = "gelu_new"

    letters: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "F": "feed-forward width"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The projections, and the activation (with the gate's multiplication, where there is one)."""
        gate = Matmul(f"{at}.gate_proj", "B T D, D F -> B T F", bias=self.bias)
        return (
            *((gate,) if self.gated else ()),
            Matmul(f"{at}.up_proj", "B T D, D F -> B T F", bias=self.bias),
            Pointwise(f"{at}.act", "B T F"),
            Matmul(f"{at}.down_proj", "B T F, F D -> B T D", bias=self.bias),
        )
