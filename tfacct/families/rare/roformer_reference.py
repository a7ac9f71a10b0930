"""The reference model's stored sines and cosines."""

from __future__ import annotations

from tfacct.families.rare import roformer
from tfacct.reference.modules import Embedding


class SinusoidTable(Embedding):
    """Stored sines and cosines, which are not read: angles are computed in each step."""

    def __init__(self, part: roformer.SinusoidTable) -> None:
        super().__init__(part.rows, part.head_dim)
        self.weight.requires_grad = False
