"""The reference model's table of sines and cosines, which is stored only."""

from __future__ import annotations

from tfacct.families.rare import roformer
from tfacct.reference.modules import Embedding


class SinusoidTable(Embedding):
    """A table that nothing reads: angles are computed in each step."""

    def __init__(self, part: roformer.SinusoidTable) -> None:
        super().__init__(part.rows, part.head_dim)
        self.weight.requires_grad = False
