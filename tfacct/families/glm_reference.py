"""The torch module of GLM-5.3's indexer over keys computed from several tokens each (transformers'
Glm5NextTextIndexer).

Shapes: keys and weights of tokens are (batch, 1, tokens, size).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.compressed import Bias, Shares, there_are
from tfacct.reference.modules import Activation, LayerNorm, Linear, Product, Times
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step, forbidding


class PooledIndexer(nn.Module):
    """Separate heads score the keys of complete token groups; their weighted sum selects groups."""

    def __init__(self, part: parts.LatentAttention, angles: Angles | None) -> None:
        super().__init__()
        indexer: Any = part.indexer
        heads, size, rate = indexer.heads, indexer.head_dim, indexer.pool
        self.heads, self.size, self.rate, self.top, self.tail = heads, size, rate, indexer.top, indexer.tail
        self.q_proj = Linear(part.q_rank or part.hidden, heads * size, bias=False)
        self.k_proj, self.gate_proj = Linear(part.hidden, size, bias=False), Linear(part.hidden, size, bias=False)
        self.k_norm = LayerNorm((size,), 1e-6)
        self.position_bias, self.softmax, self.weighting = Bias(rate, size), Shares(), Times()
        self.scores, self.act, self.sum = Product(heads), Activation("relu"), Product(1)
        self.weights_proj = Linear(part.hidden, heads, bias=False)

    def forward(self, x: Tensor, read: Tensor, step: Step, past: Tensor | None) -> Tensor:
        """Keys, weights and padding marks of all tokens at the end of the step, (batch, 1, tokens, 2 · size + 1); the
        selection is stored in the step."""
        q = torch.unflatten(self.q_proj(read), 2, (self.heads, self.size)).transpose(1, 2)
        k, gates = self.k_norm(self.k_proj(x)), self.gate_proj(x)
        packed = torch.cat((k, gates, torch.ones_like(k[..., :1])), dim=-1).unsqueeze(1)
        packed = packed if past is None else torch.cat((past, packed), dim=2)
        k, gates, _ = torch.split(packed.squeeze(1), [self.size, self.size, 1], dim=-1)
        keys = self._made(k, gates).unsqueeze(1)
        each = self.act(self.scores(q, keys.transpose(2, 3)) * self.size**-0.5).transpose(1, 2)
        weights = (self.weights_proj(x) * self.heads**-0.5).unsqueeze(2)
        step.chosen = self._mask(self.sum(weights, each).squeeze(2), step, k.shape[1])
        return packed

    def _made(self, k: Tensor, gates: Tensor) -> Tensor:
        """Keys of complete groups, (batch, groups, size)."""
        count, rate = k.shape[1] // self.rate, self.rate
        k, gates = (torch.unflatten(each.narrow(1, 0, count * rate), 1, (count, rate)) for each in (k, gates))
        if not there_are(count):
            return k.sum(dim=2)
        made: Tensor = self.weighting(k, self.softmax(self.position_bias(gates))).sum(dim=2)
        return made

    def _mask(self, scores: Tensor, step: Step, tokens: int) -> Tensor:
        """Mask of shape (batch, 1, new, tokens): −∞ for tokens outside the selected groups and, with a tail, before the
        end of the last complete group. Zeros computed from the scores are added, because a trace would drop unused
        scores."""
        unread = (scores.sum(dim=-1, keepdim=True) * 0.0).unsqueeze(1)
        known = all(isinstance(size, int) for size in (*scores.shape, self.rate, self.top, tokens))
        if scores.is_meta or not known:
            return unread
        at = step.positions.to(scores.device).view(1, -1, 1)
        count, rate = scores.shape[-1], self.rate
        ends = (torch.arange(count, device=scores.device) + 1) * rate - 1
        complete = ends.view(1, 1, -1) <= at
        best = scores.detach().masked_fill(~complete, float("-inf"))
        found = torch.zeros_like(best).scatter(-1, best.topk(min(self.top // rate, count), dim=-1).indices, 1.0) > 0
        seen = (found & complete).repeat_interleave(rate, dim=-1)
        seen = nn.functional.pad(seen, (0, tokens - count * rate))
        if self.tail:
            each = torch.arange(tokens, device=scores.device).view(1, 1, -1)
            recent = torch.div(at + 1, rate, rounding_mode="floor") * rate
            seen = seen | ((each >= recent) & (each <= at))
        return unread + forbidding(~seen, scores).unsqueeze(1)
