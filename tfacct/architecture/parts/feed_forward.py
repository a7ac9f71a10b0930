"""MLP (feed-forward): two matrices around an activation, or three if gated (SwiGLU, GeGLU).

Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), section 3.3; gated: Shazeer, "GLU Variants Improve
Transformer" (2002.05202).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import JOINED
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Unused


@cache
def projections(
    at: str, width: str, *, gated: bool, bias: bool, down_bias: bool = False, function: str = "silu"
) -> tuple[Matmul | Pointwise, ...]:
    """Lines of an MLP with axis `width`: projections, and the activation with the gate."""
    gate = Matmul(f"{at}.gate_proj", f"B T D, D {width} -> B T {width}", bias=bias)
    plain = (
        Matmul(f"{at}.up_proj", f"B T D, D {width} -> B T {width}", bias=bias),
        Pointwise(f"{at}.act", f"B T {width}", kind="activation", function=function),
        Matmul(f"{at}.down_proj", f"B T {width}, {width} D -> B T D", bias=bias or down_bias),
    )
    return (gate, *plain) if gated else plain


@record(kw_only=True)
class FeedForward(Part):
    """MLP, `hidden` → `width` → `hidden`. `gated`: the activation of a gate projection multiplies another projection.

    `down_bias`: only the last projection has a bias. `activation`: name in configs; only training memory depends on it.
    `norm`: a norm before the first projection. `inner_norm`: an RMSNorm before the last one (BitNetMLP). `gate_scale`:
    factor of the gate before the activation (FalconH1MLP). `channel_scale`: learned factors of the channels of the
    result (LayerScale, arXiv 2103.17239). `called`: false if it is stored but never runs.
    """

    hidden: Size
    width: Size
    gated: bool = False
    bias: bool = False
    down_bias: bool = False
    activation: str = "gelu_new"
    norm: Literal["layer", "rms"] | None = None
    eps: float = 1e-5
    inner_norm: float | None = None
    gate_scale: float | None = None
    called: bool = True
    channel_scale: bool = False

    name: ClassVar[str] = "mlp"
    kind: ClassVar[str] = "dense"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "F": "feed-forward width"}

    def lines(self, at: str) -> Iterator[Line]:
        """Norm, projections and activation; only stored tensors if it is never called."""
        for line in self._called_lines(at):
            if self.called:
                yield line
            elif line.parameters():
                yield Unused(line)

    def _called_lines(self, at: str) -> Iterator[Matmul | Pointwise]:
        *gate, up, act, down = projections(
            at, "F", gated=self.gated, bias=self.bias, down_bias=self.down_bias, function=self.activation
        )
        if self.norm == "layer":
            yield Pointwise(f"{at}.norm", "B T D", weight="D", bias="D", kind="norm_layer")
        elif self.norm == "rms":
            yield Pointwise(f"{at}.norm", "B T D", weight="D", kind="norm_rms")
        yield from gate
        if self.gate_scale is not None:
            yield Pointwise(f"{at}.gate_scale", "B T F", kind="scale")
        yield up
        yield act
        if self.inner_norm is not None:
            yield Pointwise(f"{at}.inner_norm", "B T F", weight="F", kind="norm_rms")
        yield down
        if self.channel_scale:
            yield Pointwise(f"{at}.channel_scale", "B T D", weight="D")


@record(kw_only=True)
class AdaptedFeedForward(FeedForward):
    """Gated MLP with weights shared by layers, and a low-rank adapter per layer for the gate and up projections
    (Zamba2MLP)."""

    gated: bool = True
    adapter: Size

    axis_names: ClassVar[dict[str, str]] = {**FeedForward.axis_names, "adapter": "Ra"}
    legend: ClassVar[dict[str, str]] = {**FeedForward.legend, "Ra": JOINED["Ra"]}

    def lines(self, at: str) -> Iterator[Line]:
        """A down projection of the adapter for both, and an up projection and addition for each."""
        gate, up, *rest = FeedForward.lines(self, at)
        yield gate
        yield up
        yield Matmul(f"{at}.adapter_down", "B T D, D Ra -> B T Ra")
        yield Matmul(f"{at}.gate_adapter_up", "B T Ra, Ra F -> B T F")
        yield Matmul(f"{at}.up_adapter_up", "B T Ra, Ra F -> B T F")
        yield Pointwise(f"{at}.gate_adapter_add", "B T F", kind="sum")
        yield Pointwise(f"{at}.up_adapter_add", "B T F", kind="sum")
        yield from rest
