"""The reference model's token tables of whose rows several stand side by side: of neighbours, or of shapes and
sounds."""

from __future__ import annotations

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.modules import Embedding, Linear, Tokens


class NeighbouredTokens(Tokens):
    """Rows of the next token, of a token's own and of the one before, side by side; none is all zeros."""

    def __init__(self, part: parts.Embedding) -> None:
        super().__init__(part)
        assert part.width is not None
        self.project = Linear(3 * part.width, part.hidden, bias=part.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = Embedding.forward(self, tokens)
        count, none = rows.shape[1], rows.new_zeros(rows.shape[0], 1, rows.shape[2])
        wide = torch.cat((none, rows, none), dim=1)
        assert self.project is not None
        beside = (wide.narrow(1, 2, count), rows, wide.narrow(1, 0, count))
        made: Tensor = self.project(torch.cat(beside, dim=2))
        return made
