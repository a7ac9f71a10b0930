"""Per-layer embeddings: a second table, of which every layer reads rows of its own for each token.

Transformers' Gemma3nTextModel and Gemma4TextModel (`project_per_layer_inputs`), and the end of their decoder layers.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table

_LEGEND = {
    "D": "hidden size",
    "Vp": "vocabulary of the per-layer embeddings",
    "Lp": "layers that have rows of their own in the per-layer embeddings",
    "Dy": "width of a per-layer embedding",
}


@record(kw_only=True)
class PerLayerEmbedding(Part):
    """Table of `vocab` tokens, with a row of `width` for each of `layers`. A product of the token's vector, normed, is
    added to the rows; without a table it is the rows (EmbeddingGemma2TextPLE)."""

    layers: Size
    width: Size
    hidden: Size
    vocab: Size | None = None
    eps: float = 1e-6

    name: ClassVar[str] = "per_layer"
    label: ClassVar[str] = "per-layer embeddings"
    letters: ClassVar[dict[str, str]] = {"vocab": "Vp", "layers": "Lp", "width": "Dy", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = _LEGEND

    def lines(self, at: str) -> tuple[Line, ...]:
        """Table, scaled rows, product, norm and sum."""
        made = (
            Matmul(f"{at}.project", "B T D, D Lp Dy -> B T Lp Dy"),
            Pointwise(f"{at}.project_scale", "B T Lp Dy", kind="scale"),
            Pointwise(f"{at}.norm", "B T Lp Dy", weight="Dy", kind="norm_rms"),
        )
        if self.vocab is None:
            return made
        return (
            Table(at, "Vp Lp Dy"),
            Pointwise(f"{at}.scale", "B T Lp Dy", kind="scale"),
            *made,
            Pointwise(f"{at}.add", "B T Lp Dy", kind="sum"),
            Pointwise(f"{at}.sum_scale", "B T Lp Dy", kind="scale"),
        )


@record(kw_only=True)
class PerLayerInput(Part):
    """Product of a token's vector, activated, times the layer's own row, and a product back."""

    hidden: Size
    width: Size
    activation: str = "gelu_pytorch_tanh"

    name: ClassVar[str] = "per_layer"
    label: ClassVar[str] = "per-layer embeddings"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "width": "Dy"}
    legend: ClassVar[dict[str, str]] = {name: text for name, text in _LEGEND.items() if name in ("D", "Dy")}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Two products, and what stands between them."""
        return (
            Matmul(f"{at}.gate_proj", "B T D, D Dy -> B T Dy"),
            Pointwise(f"{at}.act", "B T Dy", kind="activation", function=self.activation),
            Matmul(f"{at}.up_proj", "B T Dy, Dy D -> B T D"),
        )
