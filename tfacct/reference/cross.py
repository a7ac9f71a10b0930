"""The reference model's cross-attention.

Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import Cache, Heads, Softmax
from tfacct.reference.modules import RMSNorm, Softcap, through
from tfacct.reference.part_module import Past, Shapes
from tfacct.reference.rotary import Angles


class CrossAttention(Heads):
    """Attention of the new tokens to a source, whose keys and values are computed once and cached."""

    takes = ("source", "past")
    caches = ("k_cache", "v_cache")

    @classmethod
    def built(cls, part: Any, angles: Angles | None, *, fused: bool, keep_all: bool) -> Self:  # noqa: ARG003
        return cls(part, fused=fused)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        return ((past.batch, part.kv_heads, past.source, part.head_dim),) * 2 if past.source else ()

    def __init__(self, part: parts.CrossAttention, *, fused: bool) -> None:
        super().__init__(part)
        self.fused = fused and not self.far and part.softcap is None
        self.q_norm = self.k_norm = None
        if part.qk_norm is not None:
            self.q_norm, self.k_norm = (RMSNorm(part.head_dim, part.qk_norm) for _ in "qk")
        self.softcap = None if part.softcap is None else Softcap(part.softcap, self.scale)
        self.softmax = Softmax(self.scale if part.softcap is None else None)

    def forward(self, x: Tensor, source: Tensor | None, past: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
        q = through(self.q_norm, self._split(self.q_proj(x), self.heads))
        if source is not None:
            k, v = (self._split(made(source), self.kv_heads) for made in (self.k_proj, self.v_proj))
            k = through(self.k_norm, k)
        elif past is not None:
            k, v = past
        else:
            raise ValueError("cross-attention needs a source or its cache")
        mixed = self._mixed(q, k, v)
        return self.o_proj(mixed.transpose(1, 2).flatten(2)), k, v

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, k, v, scale=self.scale, enable_gqa=True)
        scores = through(self.softcap, self._scored(q, k))
        return self.values(self.softmax(scores, None), v)
