"""The torch module of Mistral Large 4's indexer."""

from __future__ import annotations

from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.indexer import Grown, Indexer
from tfacct.reference.modules import LayerNorm
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


class StreamIndexer(Indexer):
    """An indexer with queries from the residual stream, which grow with their position."""

    def __init__(self, part: parts.LatentAttention, angles: Angles | None) -> None:
        super().__init__(part, angles)
        self.q_norm, self.q_scale = LayerNorm((part.hidden,), 1e-6), Grown(self.heads)

    def _queries(self, x: Tensor, read: Tensor, step: Step) -> Tensor:
        out: Tensor = self.q_scale(super()._queries(x, self.q_norm(x), step), step.positions)
        return out
