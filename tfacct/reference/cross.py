"""The reference model's attention to a source, and its scores for distances.

Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import Cache, Heads, Softmax
from tfacct.reference.modules import Embedding


class CrossAttention(Heads):
    """Attention of the new tokens to a source. Its keys and values are made of it once, and kept."""

    caches = ("k_cache", "v_cache")

    def __init__(self, part: parts.CrossAttention, *, fused: bool) -> None:
        super().__init__(part)
        self.fused = fused and not self.far
        self.softmax = Softmax(self.scale)

    def forward(self, x: Tensor, source: Tensor | None, past: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
        q = self._split(self.q_proj(x), self.heads)
        if source is not None:
            k, v = (self._split(made(source), self.kv_heads) for made in (self.k_proj, self.v_proj))
        elif past is not None:
            k, v = past
        else:
            raise ValueError("cross attention needs a source, or what was kept of one")
        mixed = self._mixed(q, k, v)
        return self.o_proj(mixed.transpose(1, 2).flatten(2)), k, v

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, k, v, scale=self.scale, enable_gqa=True)
        mixed: Tensor = self.values(self.softmax(self._scored(q, k), None), v)
        return mixed


class RelativeBias(Embedding):
    """Score for each head and the bucket of each distance from a query to a key.

    Raffel et al., "T5" (arXiv 1910.10683), section 2.1, and transformers' T5Attention._relative_position_bucket.
    """

    def __init__(self, part: parts.RelativeBias, *, both_ways: bool) -> None:
        super().__init__(part.buckets, part.heads)
        self.both_ways, self.furthest = both_ways, part.furthest

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:  # type: ignore[override]
        """Scores (1, heads, queries, keys) for these positions."""
        distances = keys[None, :] - queries[:, None]
        return super().forward(self._buckets(distances).to(self.weight.device)).permute(2, 0, 1).unsqueeze(0)

    def _buckets(self, distances: Tensor) -> Tensor:
        """Bucket of each distance: near ones have one each, far ones share them by their logarithm. Keys behind a query
        have a half of the buckets for themselves; a causal stack has no such keys, and needs no halves."""
        if not isinstance(self.num_embeddings, int):  # a symbol: which row is read changes no count
            return distances * 0
        count, first = self.num_embeddings, torch.zeros_like(distances)
        if self.both_ways:
            count //= 2
            first = (distances > 0).long() * count
            distances = distances.abs()
        else:
            distances = (-distances).clamp(min=0)
        near = count // 2
        octaves = torch.log(distances.clamp(min=1) / max(near, 1)) / math.log(self.furthest / max(near, 1))
        far = (near + (octaves * (count - near)).long()).clamp(max=count - 1)
        return first + torch.where(distances < near, distances, far)
