"""The torch module of MiniMax-M3's indexer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.families import minimax
from tfacct.reference.modules import Linear, Product, RMSNorm
from tfacct.reference.rotary import Angles, Rotary, rotated
from tfacct.reference.step import Step


class BlockIndexer(nn.Module):
    """Separate heads score one key per token; each head selects the blocks with the best keys
    (transformers' MiniMaxM3VLIndexer)."""

    def __init__(self, part: parts.Attention, angles: Angles | None) -> None:
        super().__init__()
        indexer = part.indexer
        assert isinstance(indexer, minimax.BlockIndexer) and part.qk_norm is not None
        self.blocks, self.angles, self.rotary_dim, self.query_heads = indexer, angles, part.rope_dim, part.heads
        self.heads, self.size = heads, size = indexer.heads, indexer.head_dim
        self.q_proj = Linear(part.hidden, heads * size, bias=False)
        self.k_proj = Linear(part.hidden, size, bias=False)
        self.q_norm, self.k_norm = (RMSNorm(size, part.qk_norm.eps, part.qk_norm.less_one) for _ in range(2))
        self.q_rotary = self.k_rotary = None
        if part.rotary is not None:
            rotary_dim: Any = part.rope_dim
            self.q_rotary, self.k_rotary = Rotary(part.rotary, rotary_dim), Rotary(part.rotary, rotary_dim)
        self.scores = Product(heads)

    def forward(self, x: Tensor, step: Step, past: Tensor | None) -> Tensor:
        """Keys at the end of the step, (batch, 1, keys, size); the selection is stored in the step."""
        q = self.q_norm(torch.unflatten(self.q_proj(x), 2, (self.heads, self.size)).transpose(1, 2))
        k: Tensor = self.k_norm(self.k_proj(x).unsqueeze(1))
        if self.angles is not None and self.q_rotary is not None and self.k_rotary is not None:
            cos_sin = step.cos_sin(self.angles)
            q, k = (rotated(one, x, cos_sin, self.rotary_dim) for one, x in ((self.q_rotary, q), (self.k_rotary, k)))
        old = 0
        if past is not None:
            old = past.shape[2]
            k = torch.cat((past, k), dim=2)
        step.chosen = self._mask(self.scores(q, k.transpose(2, 3)), step, old)
        return k

    def _mask(self, scores: Tensor, step: Step, old: int) -> Tensor:
        """Mask of shape (batch, query heads, new, keys). Zeros computed from the scores are added, because a trace
        would drop unused scores. Without values, and in a proof, it has only these zeros."""
        unread = scores[:, :1] * 0.0
        known = all(isinstance(size, int) for size in (*scores.shape, self.size, self.heads, self.query_heads))
        if scores.is_meta or not known or self.query_heads % self.heads:
            return unread
        size, causal = self.blocks.size, step.mask(old, None)
        keys = scores.shape[-1]
        count = -(-keys // size)
        padded = nn.functional.pad(scores.detach() + causal, (0, count * size - keys), value=float("-inf"))
        best = torch.unflatten(padded, -1, (count, size)).amax(dim=-1)
        block = torch.div(step.positions.to(scores.device), size, rounding_mode="floor")
        for before in range(self.blocks.local):  # these are always selected
            at = (block - before).clamp(min=0).view(1, 1, -1, 1).expand(*best.shape[:3], 1)
            best = best.scatter(-1, at, float("inf"))
        top = best.topk(min(self.blocks.top, count), dim=-1).indices
        left = torch.full_like(best, float("-inf")).scatter(-1, top, 0.0)
        left = left.repeat_interleave(size, dim=-1)[..., :keys]
        return left.repeat_interleave(self.query_heads // self.heads, dim=1) + causal + unread
