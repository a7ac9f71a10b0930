"""The reference model's shape and pronunciation embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from tfacct.families.rare import roc_bert
from tfacct.reference.modules import Embedding, Linear, Tokens


class GlyphEmbedding(Tokens):
    """Token, shape and pronunciation embeddings, concatenated: all tokens have the first shape and pronunciation."""

    def __init__(self, part: roc_bert.GlyphEmbedding) -> None:
        super().__init__(part)
        self.shapes, self.sounds = Embedding(part.shapes, part.shape_dim), Embedding(part.sounds, part.sound_dim)
        self.project = Linear(part.hidden + part.shape_dim + part.sound_dim, part.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        first = torch.zeros_like(tokens)
        rows = (Embedding.forward(self, tokens), self.shapes(first), self.sounds(first))
        assert self.project is not None
        made: Tensor = self.project(torch.cat(rows, dim=2))
        return made
