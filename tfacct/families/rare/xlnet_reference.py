"""The reference model's relative attention, and embedding with a masked row.

Shapes: heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.families.rare import xlnet
from tfacct.reference.attention import Attention, by_head
from tfacct.reference.distances import Gather
from tfacct.reference.modules import Linear, Product, Tokens, Vector, Work
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


class Shifted(Work):
    """Queries, plus a learned vector per head."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(heads, size))

    def forward(self, q: Tensor) -> Tensor:
        return q + self.bias.unsqueeze(1)


class Stored(nn.Module):
    """A tensor that nothing reads."""

    def __init__(self, name: str, *shape: int) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.empty(*shape)))


class RelativeAttention(Attention):
    """Attention with keys of distances, next to those of contents."""

    def __init__(self, part: xlnet.RelativeAttention, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__(part, angles, fused=False, keep_all=keep_all)
        self.hidden, heads = part.hidden, (part.heads, part.head_dim)
        self.r_proj = Linear(part.hidden, self.queries, bias=False)
        self.content, self.position = Shifted(*heads), Shifted(*heads)
        self.segments, self.segment = Stored("weight", 2, *heads), Stored("bias", *heads)
        self.positions, self.position_add = Product(1), Gather()

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, step: Step, _: int) -> Tensor:
        tokens, positions = q.shape[2], step.positions.to(q.device)
        keys = by_head(self.r_proj(self._distances(q, tokens)), self.heads, self.head_dim)
        by_distance = self.positions(self.position(q), keys.transpose(2, 3))
        which = positions[None, :] - positions[:, None] + tokens
        scores = self.position_add(self._scored(self.content(q), k), by_distance, which, of_keys=False)
        mixed: Tensor = self.values(self.softmax(scores, None, None), v)
        return mixed

    def _distances(self, q: Tensor, tokens: int) -> Tensor:
        """Sines and cosines of the distances from `tokens` down to −`tokens`, for each sequence; zeros of that shape
        for symbolic sizes. They require a gradient, as the embedding of tokens does."""
        shape = (q.shape[0], 2 * tokens, self.hidden)
        if not isinstance(self.hidden, int):
            return q.new_zeros(shape).requires_grad_(torch.is_grad_enabled())
        rates = 10000 ** -(torch.arange(0, self.hidden, 2, device=q.device, dtype=q.dtype) / self.hidden)
        angles = torch.arange(tokens, -tokens, -1, device=q.device, dtype=q.dtype)[:, None] * rates
        rows = torch.cat((angles.sin(), angles.cos()), dim=-1)[:, : self.hidden]
        return rows.expand(shape).requires_grad_(torch.is_grad_enabled())


class MaskedEmbedding(Tokens):
    """Token embedding with a row for masked tokens."""

    def __init__(self, part: xlnet.MaskedEmbedding) -> None:
        super().__init__(part)
        self.mask = Vector(part.hidden)
