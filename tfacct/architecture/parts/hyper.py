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


@record(kw_only=True)
class HyperConnection(Part):
    """In front of a sublayer: of all `streams` together come the weights of the sum that it reads, those by which its
    result is added to each, and a matrix, its rows and columns made to sum to 1 by `rounds` of divisions, that mixes
    them (see HyperResult)."""

    hidden: Size
    streams: Size
    rounds: int = 20
    eps: float = 1e-6
    norm_eps: float = 1e-6

    name: ClassVar[str] = "hc"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Xm": "residual streams",
        "Xw": "weights that mix the streams, 2 · Xm + Xm · Xm",
        "Xf": f"factors of these weights, {PARTS}",
    }
    made: ClassVar[dict[str, str]] = {"Xw": "2 · Xm + Xm · Xm", "Xf": str(PARTS)}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Weights, and the stream that is read."""
        return (
            Pointwise(f"{at}.norm", "B T Xm D"),
            Matmul(f"{at}.weights", "B T Xm D, Xm D Xw -> B T Xw"),
            Table(f"{at}.factors", "Xf", embedding=False),
            Pointwise(f"{at}.base", "B T Xw", bias="Xw"),
            Pointwise(f"{at}.squashed", "B T Xw"),
            Pointwise(f"{at}.read", "B T D"),
        )


@record(kw_only=True)
class HyperResult(Part):
    """Behind a sublayer: its result added to all streams, which are mixed."""

    hidden: Size
    streams: Size

    name: ClassVar[str] = "hc"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Xm": "residual streams",
        "Xn": "the same streams, as those that are mixed, Xm",
    }
    made: ClassVar[dict[str, str]] = {"Xn": "Xm"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The result for each stream, the streams mixed, and their sum."""
        return (
            Pointwise(f"{at}.result", "B T Xm D"),
            Matmul(f"{at}.mix", "B T Xn Xm, B T Xn D -> B T Xm D"),
            Pointwise(f"{at}.add", "B T Xm D", sums=True),
        )


@record(kw_only=True)
class HyperHead(Part):
    """Behind the blocks: a weighted sum of all streams, by weights made of them."""

    hidden: Size
    streams: Size
    eps: float = 1e-6
    norm_eps: float = 1e-6

    name: ClassVar[str] = "hc_head"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "streams": "Xm"}
    legend: ClassVar[dict[str, str]] = {
        **HyperResult.legend,
        "Xg": "factors of the weights behind the blocks, 1",
    }
    made: ClassVar[dict[str, str]] = {"Xn": "Xm", "Xg": "1"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Weights, and the sum."""
        return (
            Pointwise(f"{at}.norm", "B T Xm D"),
            Matmul(f"{at}.weights", "B T Xm D, Xm D Xn -> B T Xn"),
            Table(f"{at}.factor", "Xg", embedding=False),
            Pointwise(f"{at}.base", "B T Xn", bias="Xn"),
            Pointwise(f"{at}.squashed", "B T Xn"),
            Pointwise(f"{at}.sum", "B T D"),
        )
