"""Normalisation over the hidden size: Ba et al., "Layer Normalization" (arXiv 1607.06450); Zhang and Sennrich, "Root
Mean Square Layer Normalization" (1910.07467)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.embedding import WIDTHS, row
from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import BOTH, JOINED
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, PointwiseKind, Unused
from tfacct.ledger.paths import NORMS

SHARED = "shared_norm"
"""Name of the parameters shared by all norms of a layer."""


@record(kw_only=True)
class Norm(Part):
    """LayerNorm (scale and shift) or RMSNorm (scale only).

    `learned`: a LayerNorm has `both`, only the `scale` (transformers' CohereLayerNorm), or `none` (OlmoLayerNorm); an
    RMSNorm may have `none` too (NanoChatRMSNorm). `less_one`: the stored weight is the scale minus 1. `scales_first`:
    the scale is applied before normalization (MuseSparkTextInputScaledRMSNorm). No count depends on either. `narrow`:
    `hidden` is the width of a narrow token embedding. `joined`: the input is two concatenated vectors of that width.
    `shared`: all norms of the layer share scale and shift. `called`: false if it is stored but never runs.
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
        """Axis of two concatenated vectors, if `joined`."""
        return BOTH if self.joined else {}

    def axes(self) -> dict[str, Size]:
        """Size of the input."""
        found = Part.axes(self)
        return {axis: found[axis] for axis in BOTH} if self.joined else found

    def lines(self, at: str) -> Iterator[Line]:
        """One pointwise line."""
        module = f"{at.rpartition('.')[0]}.{SHARED}" if self.shared else None
        axis = "Dj" if self.joined else row(self.narrow)
        weight = "" if self.learned == "none" else axis
        shift = axis if self.kind != "rms" and self.learned == "both" else ""
        kind: PointwiseKind = "norm_rms" if self.kind == "rms" else "norm_layer"
        line = Pointwise(at, f"B T {axis}", weight=weight, bias=shift, kind=kind, module=module)
        if self.called:
            yield line
        else:
            yield Unused(line)


@record(kw_only=True)
class GatedNorm(Norm):
    """Norm with a gate: the sigmoid of an MLP of width `gate_rank` over the norm's result (AXK2GatedRMSNorm)."""

    gate_rank: Size

    axis_names: ClassVar[dict[str, str]] = {**Norm.axis_names, "gate_rank": "Rn"}
    legend: ClassVar[dict[str, str]] = {"D": WIDTHS["D"], "Rn": "width of the MLP that gates a norm"}

    def lines(self, at: str) -> Iterator[Line]:
        """Norm and gate."""
        yield from Norm.lines(self, at)
        yield Matmul(f"{at}.gate_down", "B T D, D Rn -> B T Rn")
        yield Pointwise(f"{at}.act", "B T Rn", kind="activation", function="silu")
        yield Matmul(f"{at}.gate_up", "B T Rn, Rn D -> B T D")
        yield Pointwise(f"{at}.gate", "B T D", kind="gate", function="sigmoid")
