"""The reference model's token table with those of shapes and sounds beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.modules import Embedding, Linear, Tokens


class ShapedTokens(Tokens):
    """Rows of tokens, of their shapes and of their sounds, side by side: the first shape and sound throughout."""

    def __init__(self, part: parts.ShapedEmbedding) -> None:
        super().__init__(part)
        self.shapes, self.sounds = Embedding(part.shapes, part.shape_dim), Embedding(part.sounds, part.sound_dim)
        self.project = Linear(part.hidden + part.shape_dim + part.sound_dim, part.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        first = torch.zeros_like(tokens)
        rows = (Embedding.forward(self, tokens), self.shapes(first), self.sounds(first))
        made: Tensor = self.project(torch.cat(rows, dim=2))
        return made
