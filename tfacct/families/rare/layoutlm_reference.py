"""The reference model's box embeddings, and an unused pooler."""

from __future__ import annotations

from torch import Tensor

from tfacct.families.rare import layoutlm
from tfacct.reference.modules import Add, Embedding, Unused
from tfacct.reference.positions import AddedEmbedding


class LayoutEmbedding(AddedEmbedding):
    """Embeddings of a token's box, added to the token embedding: all boxes have the coordinates 0."""

    def __init__(self, part: layoutlm.LayoutEmbedding) -> None:
        super().__init__()
        for name in part.TABLES:
            self.add_module(name, Embedding(part.rows, part.hidden))
        for name in part.ADDED:
            self.add_module(f"{name}_add", Add())

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        first = positions.to(x.device) * 0
        for table, name in zip("xyxyhw", layoutlm.LayoutEmbedding.ADDED, strict=True):
            x = self.get_submodule(f"{name}_add")(x, self.get_submodule(table)(first))
        return x


class UnusedPooler(Unused):
    """The weight and bias of a pooler."""

    def __init__(self, part: layoutlm.UnusedPooler) -> None:
        super().__init__(part.hidden, part.hidden, bias=True)
