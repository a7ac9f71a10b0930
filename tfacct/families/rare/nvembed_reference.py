"""The reference model's pooler over learned latents.

Shapes: x is (batch, tokens, hidden), the latents are (batch, rows, hidden).
"""

from __future__ import annotations

from torch import Tensor

from tfacct.architecture import parts
from tfacct.families.rare import nvembed
from tfacct.reference.attention import Softmax, by_head
from tfacct.reference.images import Token
from tfacct.reference.modules import Add, FeedForward, LayerNorm, Linear, Product
from tfacct.reference.part_module import PartModule


class LatentPooler(PartModule):
    """Attention of each position to learned latents, an MLP, and the mean of all positions."""

    def __init__(self, part: nvembed.LatentPooler) -> None:
        super().__init__()
        self.heads, self.head_dim, width = part.heads, part.head_dim, part.heads * part.head_dim
        self.rows = Token(part.rows, part.hidden)
        self.norm, self.rows_norm = (LayerNorm((part.hidden,), part.eps) for _ in range(2))
        self.q_proj, self.k_proj, self.v_proj = (Linear(part.hidden, width, bias=False) for _ in range(3))
        self.scores, self.values = Product(1), Product(1)
        self.softmax = Softmax(part.head_dim**-0.5)
        self.o_proj = Linear(width, part.hidden, bias=False)
        self.mlp_norm = LayerNorm((part.hidden,), part.eps)
        mlp = parts.FeedForward(hidden=part.hidden, width=part.width, gated=True, bias=True, activation="gelu")
        self.mlp, self.add, self.mlp_add = FeedForward(mlp), Add(), Add()

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows_norm(self.rows(x.shape[0]))
        q = by_head(self.q_proj(self.norm(x)), self.heads, self.head_dim)
        k, v = (by_head(made(rows), self.heads, self.head_dim) for made in (self.k_proj, self.v_proj))
        mixed = self.values(self.softmax(self.scores(q, k.transpose(2, 3)), None), v)
        x = self.add(x, self.o_proj(mixed.transpose(1, 2).flatten(2)))
        result: Tensor = self.mlp_add(x, self.mlp(self.mlp_norm(x)))
        return result.mean(dim=1)
