"""Self-attention of an encoder in windows that overlap by half.

Beltagy et al., "Longformer" (arXiv 2004.05150), section 3.1; the order and the shapes of the products: transformers'
LEDEncoderSelfAttention.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import HALF, LONGEST, WHOLE, Line, Matmul, Pointwise, Unused
from tfacct.ledger.workload import HALVES, OVERLAPPING


@record(kw_only=True)
class OverlappingAttention(Attention):
    """Attention of an encoder's tokens to those in a window around each, `half` of it on either side.

    Scores are those of all pairs in windows of two halves, each of which shares a half with the next; the queries of a
    half then read the values of three. The source is padded to whole windows of `longest` tokens, the longest of any
    block's. Queries, keys and values of tokens that see all have weights of their own; without such tokens these never
    run.
    """

    half: Size
    longest: Size

    mesh_unsupported: ClassVar[str] = "attention in windows that overlap"
    letters: ClassVar[dict[str, str]] = {**Attention.letters, "half": HALF, "longest": LONGEST}
    legend: ClassVar[dict[str, str]] = {
        **{letter: Attention.legend[letter] for letter in "DNKGH"},
        HALF: "half of a window that overlaps the next",
        WHOLE: f"tokens of such a window, 2 · {HALF}",
        "Wg": f"the same tokens, as keys, 2 · {HALF}",
        "Wv": f"values that half a window reads, 3 · {HALF}",
        "Ws": f"scores of a query, 2 · {HALF} + 1",
        LONGEST: "tokens of the longest window, to whole ones of which a text is padded",
    }
    windows: ClassVar[dict[str, str]] = {
        WHOLE: f"2 · {HALF}", "Wg": f"2 · {HALF}", "Wv": f"3 · {HALF}", "Ws": f"2 · {HALF} + 1"
    }  # fmt: skip

    @property
    def padded_to(self) -> Size:
        """Tokens of the longest window."""
        return self.longest

    def derived(self) -> dict[str, str]:
        """Query heads, and what windows are made of."""
        return self.made | self.windows

    def lines(self, at: str) -> tuple[Line, ...]:
        """Four projections, QKᵀ in windows, PV in halves of them, and three projections that never run."""
        own = {"q": "N", "k": "K", "v": "K"}
        projections = {
            which: Matmul(f"{at}.{which}_proj", f"B T D, D {heads} H -> B T {heads} H", bias=self.qkv_bias)
            for which, heads in own.items()
        }
        apart = [
            Matmul(f"{at}.{which}_global_proj", one.spec, bias=self.qkv_bias) for which, one in projections.items()
        ]
        pairs, window = f"{WHOLE} Wg", f"B {OVERLAPPING}"
        return (
            *projections.values(),
            Matmul(f"{at}.scores", f"{window} {WHOLE} K G H, {window} Wg K H -> B K G {OVERLAPPING} {pairs}"),
            Pointwise(f"{at}.softmax", "B K G T Ws", kind="softmax"),
            Matmul(f"{at}.values", f"B K G {HALVES} {HALF} Wv, B {HALVES} Wv K H -> B {HALVES} {HALF} K G H"),
            Matmul(f"{at}.o_proj", "B T N H, N H D -> B T D", bias=self.out_bias),
            *map(Unused, apart),
        )
