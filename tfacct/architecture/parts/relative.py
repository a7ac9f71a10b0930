"""Self-attention that scores distances by products of sines and cosines.

Dai et al., "Transformer-XL" (arXiv 1901.02860), section 3.3, and "XLNet" (1906.08237); the order and the shapes of the
products: transformers' XLNetRelativeAttention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.architecture.parts.cross import DIRECTIONS
from tfacct.base.record import record
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table, Unused


@record(kw_only=True)
class RelativeAttention(Attention):
    """Attention whose queries, each with a learned vector of its head, are multiplied with keys of contents, and with
    another one with keys of distances: products of sines and cosines, made anew in each block, two for each token.

    Vectors of a head and of its texts, of which a pair has two, are stored, and nothing reads them where no segments
    are given.
    """

    mesh_unsupported: ClassVar[str] = "attention that scores distances by products"
    legend: ClassVar[dict[str, str]] = {
        **{letter: Attention.legend[letter] for letter in "DNKGH"},
        "Xd": DIRECTIONS,
        "Vt": "texts of a pair, 2",
    }

    def derived(self) -> dict[str, str]:
        """Query heads, both directions of a distance, and both texts of a pair."""
        return self.made | {"Xd": "2", "Vt": "2"}

    def _of_queries_and_keys(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.r_proj", "B Xd S D, D N H -> B Xd S N H")
        yield Pointwise(f"{at}.content", "B T N H", bias="N H", kind="sum")
        yield Pointwise(f"{at}.position", "B T N H", bias="N H", kind="sum")
        yield Table(f"{at}.segments", "Vt N H", embedding=False)
        yield Unused(Pointwise(f"{at}.segment", "B T N H", bias="N H", kind="sum"))

    def _of_scores(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.positions", "B T N H, B Xd S N H -> B N T Xd S")
        yield Pointwise(f"{at}.position_add", "B K G T S", kind="sum")
        yield from Attention._of_scores(self, at)
