"""A transformer block that several layers share: what it reads, and the product that brings its result back.

"The Zamba2 Suite" (arXiv 2411.15242), section 2; the order and the shapes of the products: transformers'
Zamba2HybridLayer.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul

JOINED = {"Dj": "stream and token row side by side, 2 · D", "Ra": "rank of the adapters of shared weights"}
BOTH = {"Dj": "2 · D"}
ALONE = {"U": "1: what stands alone, as a class token or the gate of a shared network"}


@record(kw_only=True)
class SharedOutput(Part):
    """Product of what a shared block made, a layer's own; its result and the stream are what the mixer reads."""

    hidden: Size

    name: ClassVar[str] = "shared_out"
    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Do": "another vector as wide as D"}
    made: ClassVar[dict[str, str]] = {"Do": "D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The product."""
        return (Matmul(f"{at}.proj", "B T D, D Do -> B T Do"),)
