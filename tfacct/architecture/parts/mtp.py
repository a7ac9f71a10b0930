"""Projection of a multi-token prediction head (MTP): residual stream and next token's embedding, concatenated.

"DeepSeek-V3" (arXiv 2412.19437), section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import BOTH, JOINED
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class MtpProjection(Part):
    """Projection of the residual stream concatenated with the next token's embedding, after an RMSNorm of each."""

    hidden: Size
    eps: float = 1e-6

    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Dj": JOINED["Dj"]}

    made: ClassVar[dict[str, str]] = BOTH

    def lines(self, at: str) -> Iterator[Line]:
        """Two norms and a projection."""
        yield Pointwise(f"{at}.row_norm", "B T D", weight="D", kind="norm_rms")
        yield Pointwise(f"{at}.stream_norm", "B T D", weight="D", kind="norm_rms")
        yield Matmul(f"{at}.proj", "B T Dj, Dj D -> B T D")
