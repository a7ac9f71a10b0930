"""The feed-forward network: two matrices around an activation, or three when it is gated (SwiGLU, GeGLU)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part


@cache
def projections(at: str, width: str, *, gated: bool, bias: bool) -> tuple[Line, ...]:
    """The lines of one network of the axis `width`: the projections, and the activation (with the gate's product)."""
    gate = Matmul(f"{at}.gate_proj", f"B T D, D {width} -> B T {width}", bias=bias)
    return (
        *((gate,) if gated else ()),
        Matmul(f"{at}.up_proj", f"B T D, D {width} -> B T {width}", bias=bias),
        Pointwise(f"{at}.act", f"B T {width}"),
        Matmul(f"{at}.down_proj", f"B T {width}, {width} D -> B T D", bias=bias),
    )


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
        """The projections and the activation."""
        return projections(at, "F", gated=self.gated, bias=self.bias)
