"""Normalisation over the hidden size: Ba et al., "Layer Normalization" (arXiv 1607.06450); Zhang and Sennrich, "Root
Mean Square Layer Normalization" (1910.07467)."""

from __future__ import annotations

from typing import ClassVar, Literal

from tfacct.architecture.parts.embedding import WIDTHS, row
from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import BOTH, JOINED
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, PointwiseKind, Unused
from tfacct.ledger.paths import NORMS

SHARED = "shared_norm"
"""Name of the parameters of a norm that a whole block shares."""


@record(kw_only=True)
class Norm(Part):
    """LayerNorm (scale and shift) or RMSNorm (scale only).

    `learned`: which of these a LayerNorm has, `both`, the `scale` alone (transformers' CohereLayerNorm), or `none`
    (OlmoLayerNorm); an RMSNorm may have `none` too (NanoChatRMSNorm). `less_one`: the stored weight is the scale less
    1, and `scales_first`, that it multiplies before (MuseSparkTextInputScaledRMSNorm); no count depends on either.
    `narrow`: `hidden` is the width of short token rows. `joined`: it reads two vectors of
    that width side by side. `shared`: it reads the scale and shift that all norms of its block share. If not `called`,
    it is stored and never runs.
    """

    hidden: Size
    kind: Literal["layer", "rms"]
    eps: float = 1e-5
    learned: Literal["both", "scale", "none"] = "both"
    less_one: bool = False
    scales_first: bool = False
    narrow: bool = False
    joined: bool = False
    shared: bool = False
    called: bool = True

    name: ClassVar[str] = NORMS
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {**WIDTHS, "Dj": JOINED["Dj"]}

    def sizes(self) -> dict[str, str]:
        """Return field → axis."""
        return {**Part.sizes(self), "hidden": row(self.narrow)}

    def derived(self) -> dict[str, str]:
        """Both vectors together, where it reads two."""
        return BOTH if self.joined else {}

    def axes(self) -> dict[str, Size]:
        """Size of what it reads."""
        found = Part.axes(self)
        return {axis: found[axis] for axis in BOTH} if self.joined else found

    def lines(self, at: str) -> tuple[Line, ...]:
        """One pointwise line, and its gate."""
        module = f"{at.rpartition('.')[0]}.{SHARED}" if self.shared else None
        axis = "Dj" if self.joined else row(self.narrow)
        weight = "" if self.learned == "none" else axis
        shift = axis if self.kind != "rms" and self.learned == "both" else ""
        kind: PointwiseKind = "norm_rms" if self.kind == "rms" else "norm_layer"
        line = Pointwise(at, f"B T {axis}", weight=weight, bias=shift, kind=kind, module=module)
        return (line if self.called else Unused(line),)


@record(kw_only=True)
class GatedNorm(Norm):
    """A sigmoid of what an MLP of this width makes of the norm's result multiplies it (AXK2GatedRMSNorm)."""

    gate_rank: Size

    axis_names: ClassVar[dict[str, str]] = {**Norm.axis_names, "gate_rank": "Rn"}
    legend: ClassVar[dict[str, str]] = {"D": WIDTHS["D"], "Rn": "width of the MLP that gates a norm"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The norm and its gate."""
        return (
            *Norm.lines(self, at),
            Matmul(f"{at}.gate_down", "B T D, D Rn -> B T Rn"),
            Pointwise(f"{at}.act", "B T Rn", kind="activation", function="silu"),
            Matmul(f"{at}.gate_up", "B T Rn, Rn D -> B T D"),
            Pointwise(f"{at}.gate", "B T D", kind="gate", function="sigmoid"),
        )
