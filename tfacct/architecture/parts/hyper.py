"""Several residual streams, mixed at each sublayer by weights that are made of them: manifold-constrained
hyper-connections.

Xie et al., "mHC" (arXiv 2512.24880); "DeepSeek-V4" (2606.19348), section 2.2. The order and the shapes of the products:
transformers' DeepseekV4HyperConnection, DeepseekV4HyperHead and DeepseekV4DecoderLayer.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table

PARTS = 3
"""What the weights are: of the sum that is read, of the result, of streams in streams."""
PARTS_UNMIXED = 2
"""The same without the last."""


@record(kw_only=True)
class HyperConnection(Part):
    """In front of a sublayer: of all `streams` together come the weights of the sum that it reads, those by which its
    result is added to each, and a matrix, its rows and columns made to sum to 1 by `rounds` of divisions, that mixes
    them (see HyperResult).

    With a `bound` there is no such matrix, and the weights of the result are up to that (HYV4HyperConnection); else up
    to 2.
    """

    hidden: Size
    streams: Size
    rounds: int = 20
    bound: float | None = None
    eps: float = 1e-6
    norm_eps: float = 1e-6

    name: ClassVar[str] = "hc"
    label: ClassVar[str] = "hyper-connections"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Xm": "residual streams",
        "Xw": "weights that mix the streams, 2 · Xm + Xm · Xm",
        "Xf": f"factors of these weights, {PARTS}",
        "Xk": "weights of the streams, which nothing mixes, 2 · Xm",
        "Xl": f"factors of these weights, {PARTS_UNMIXED}",
    }
    made: ClassVar[dict[str, str]] = {"Xw": "2 · Xm + Xm · Xm", "Xf": str(PARTS)}
    unmixed: ClassVar[dict[str, str]] = {"Xk": "2 · Xm", "Xl": str(PARTS_UNMIXED)}

    @property
    def mixes(self) -> bool:
        """True if a matrix mixes the streams."""
        return self.bound is None

    def derived(self) -> dict[str, str]:
        """Letters of the weights, with those of the matrix or without."""
        return self.made if self.mixes else self.unmixed

    def lines(self, at: str) -> tuple[Line, ...]:
        """Weights, and the stream that is read."""
        weights, factors = self.derived()
        return (
            Pointwise(f"{at}.norm", "B T Xm D", kind="norm_rms"),
            Matmul(f"{at}.weights", f"B T Xm D, Xm D {weights} -> B T {weights}"),
            Table(f"{at}.factors", factors, embedding=False),
            Pointwise(f"{at}.base", f"B T {weights}", bias=weights),
            Pointwise(f"{at}.squashed", f"B T {weights}"),
            Pointwise(f"{at}.read", "B T D"),
        )

    def after(self) -> HyperResult:
        """What stands behind the sublayer."""
        return HyperResult(hidden=self.hidden, streams=self.streams, mixes=self.mixes)


@record(kw_only=True)
class HyperResult(Part):
    """Behind a sublayer: its result added to all streams, which are mixed if it `mixes`."""

    hidden: Size
    streams: Size
    mixes: bool = True

    name: ClassVar[str] = "hc"
    label: ClassVar[str] = "hyper-connections"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Xm": "residual streams",
        "Xn": "the same streams, as those that are mixed, Xm",
    }
    made: ClassVar[dict[str, str]] = {"Xn": "Xm"}

    def derived(self) -> dict[str, str]:
        """Xn, where they are mixed."""
        return self.made if self.mixes else {}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The result for each stream, the streams mixed, and their sum."""
        mixed = (Matmul(f"{at}.mix", "B T Xn Xm, B T Xn D -> B T Xm D"),) if self.mixes else ()
        return (
            Pointwise(f"{at}.result", "B T Xm D"),
            *mixed,
            Pointwise(f"{at}.add", "B T Xm D", kind="sum"),
        )


@record(kw_only=True)
class HyperHead(Part):
    """Weighted sum of all streams after the layers, by weights computed from them."""

    hidden: Size
    streams: Size
    eps: float = 1e-6
    norm_eps: float = 1e-6

    name: ClassVar[str] = "hc_head"
    label: ClassVar[str] = "hyper-connections"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}
    legend: ClassVar[dict[str, str]] = {
        **HyperResult.legend,
        "Xg": "factors of the weights after the blocks, 1",
    }
    made: ClassVar[dict[str, str]] = {"Xn": "Xm", "Xg": "1"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Weights, and the sum."""
        return (
            Pointwise(f"{at}.norm", "B T Xm D", kind="norm_rms"),
            Matmul(f"{at}.weights", "B T Xm D, Xm D Xn -> B T Xn"),
            Table(f"{at}.factor", "Xg", embedding=False),
            Pointwise(f"{at}.base", "B T Xn", bias="Xn"),
            Pointwise(f"{at}.squashed", "B T Xn"),
            Pointwise(f"{at}.sum", "B T D"),
        )


@record(kw_only=True)
class HyperMean(Part):
    """Mean of all streams after the layers (Glm5NextTextHyperHead)."""

    hidden: Size

    name: ClassVar[str] = HyperHead.name
    label: ClassVar[str] = "hyper-connections"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The mean."""
        return (Pointwise(f"{at}.mean", "B T D"),)
