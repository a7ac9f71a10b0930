"""The feed-forward network: two matrices around an activation, or three when it is gated (SwiGLU, GeGLU)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

from tfacct.lines import Idle, Line, Matmul, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part


@cache
def projections(at: str, width: str, *, gated: bool, bias: bool) -> tuple[Matmul | Pointwise, ...]:
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

    `activation` is the name configs use. No count depends on it. `norm`: it reads what it is given through a norm of
    its own. Not `called`: it is stored, and its sublayer never runs.
    """

    hidden: Size
    width: Size
    gated: bool = False
    bias: bool = False
    activation: str = "gelu_new"
    norm: Literal["layer", "rms"] | None = None
    eps: float = 1e-5
    called: bool = True

    letters: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "F": "feed-forward width"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """A norm where it has one, the projections and the activation; of what is never called, what is stored."""
        lines = projections(at, "F", gated=self.gated, bias=self.bias)
        if self.norm is not None:
            shift = "D" if self.norm == "layer" else ""
            lines = (Pointwise(f"{at}.norm", "B T D", weight="D", bias=shift), *lines)
        return lines if self.called else tuple(Idle(line) for line in lines if line.parameters())
