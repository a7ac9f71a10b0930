"""Manifold-constrained hyper-connections: several residual streams, mixed at each sublayer by computed weights.

Xie et al., "mHC" (arXiv 2512.24880); "DeepSeek-V4" (2606.19348), section 2.2. Order and shapes of the matmuls:
transformers' DeepseekV4HyperConnection, DeepseekV4HyperHead and DeepseekV4DecoderLayer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table

PARTS = 3
"""Kinds of weights: of the sublayer's input, of its result, and of the mixing matrix."""
PARTS_UNMIXED = 2
"""The same without the mixing matrix."""


@record(kw_only=True)
class Streams(Part):
    """A part that reads all residual streams."""

    hidden: Size
    streams: Size

    label: ClassVar[str] = "hyper-connections"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}


@record(kw_only=True)
class HyperConnection(Streams):
    """Before a sublayer: weights and input of the sublayer, computed from all `streams`.

    The weights are for the sum that the sublayer reads, for adding its result to each stream, and a matrix that mixes
    the streams (see HyperResult); its rows and columns are normalized to sum to 1 in `rounds` iterations.

    With `bound`, there is no mixing matrix, and weights of the result are at most `bound` (HYV4HyperConnection); else
    at most 2.
    """

    rounds: int = 20
    bound: float | None = None
    eps: float = 1e-6
    norm_eps: float = 1e-6

    name: ClassVar[str] = "hc"
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Xm": "residual streams",
        "Xw": "mixing weights of the residual streams, 2 · Xm + Xm · Xm",
        "Xf": f"scale factors of the mixing weights, {PARTS}",
        "Xk": "weights of the streams without mixing, 2 · Xm",
        "Xl": f"scale factors of these weights, {PARTS_UNMIXED}",
    }
    made: ClassVar[dict[str, str]] = {"Xw": "2 · Xm + Xm · Xm", "Xf": str(PARTS)}
    unmixed: ClassVar[dict[str, str]] = {"Xk": "2 · Xm", "Xl": str(PARTS_UNMIXED)}

    @property
    def mixes(self) -> bool:
        """True if a matrix mixes the streams."""
        return self.bound is None

    def derived(self) -> dict[str, str]:
        """Axes of the weights, with or without the mixing matrix."""
        return self.made if self.mixes else self.unmixed

    def lines(self, at: str) -> Iterator[Line]:
        """Weights, and the input of the sublayer."""
        weights, factors = self.derived()
        yield Pointwise(f"{at}.norm", "B T Xm D", kind="norm_rms")
        yield Matmul(f"{at}.weights", f"B T Xm D, Xm D {weights} -> B T {weights}")
        yield Table(f"{at}.factors", factors, embedding=False)
        yield Pointwise(f"{at}.base", f"B T {weights}", bias=weights)
        yield Pointwise(f"{at}.squashed", f"B T {weights}")
        yield Pointwise(f"{at}.read", "B T D")

    def after(self) -> HyperResult:
        """Part after the sublayer."""
        return HyperResult(hidden=self.hidden, streams=self.streams, mixes=self.mixes)


@record(kw_only=True)
class HyperResult(Streams):
    """After a sublayer: its result is added to all streams, which are mixed if `mixes`."""

    mixes: bool = True

    name: ClassVar[str] = "hc"
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Xm": "residual streams",
        "Xn": "residual streams as inputs of the mixing, Xm",
    }
    made: ClassVar[dict[str, str]] = {"Xn": "Xm"}

    def derived(self) -> dict[str, str]:
        """Xn, if streams are mixed."""
        return self.made if self.mixes else {}

    def lines(self, at: str) -> Iterator[Line]:
        """Weighted result for each stream, mixing, and sum."""
        yield Pointwise(f"{at}.result", "B T Xm D")
        if self.mixes:
            yield Matmul(f"{at}.mix", "B T Xn Xm, B T Xn D -> B T Xm D")
        yield Pointwise(f"{at}.add", "B T Xm D", kind="sum")


@record(kw_only=True)
class HyperHead(Streams):
    """Weighted sum of all streams after the layers, by weights computed from them."""

    eps: float = 1e-6
    norm_eps: float = 1e-6

    name: ClassVar[str] = "hc_head"
    legend: ClassVar[dict[str, str]] = {**HyperResult.legend, "Xg": "scale factor of the weights after the layers, 1"}
    made: ClassVar[dict[str, str]] = {"Xn": "Xm", "Xg": "1"}

    def lines(self, at: str) -> Iterator[Line]:
        """Weights and sum."""
        yield Pointwise(f"{at}.norm", "B T Xm D", kind="norm_rms")
        yield Matmul(f"{at}.weights", "B T Xm D, Xm D Xn -> B T Xn")
        yield Table(f"{at}.factor", "Xg", embedding=False)
        yield Pointwise(f"{at}.base", "B T Xn", bias="Xn")
        yield Pointwise(f"{at}.squashed", "B T Xn")
        yield Pointwise(f"{at}.sum", "B T D")


@record(kw_only=True)
class HyperMean(Part):
    """Mean of all streams after the layers (Glm5NextTextHyperHead)."""

    hidden: Size

    name: ClassVar[str] = HyperHead.name
    label: ClassVar[str] = "hyper-connections"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> Iterator[Line]:
        """The mean."""
        yield Pointwise(f"{at}.mean", "B T D")
