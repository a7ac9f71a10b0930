"""The reference model's merged self- and cross-attention.

Shapes: heads are (batch, heads, tokens, head size), the source's (batch, heads, source tokens, head size).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tfacct.families.rare import t5gemma2
from tfacct.reference.attention import Attention, Cache, Softmax, by_head
from tfacct.reference.modules import Linear, Product, RMSNorm, Tokens, Vector, Work, through
from tfacct.reference.part_module import Past, Shapes
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


class SoftmaxOfBoth(Softmax):
    """Softmax over both sets of scores. It returns the weights of the tokens; those of the source are in `waiting`."""

    waiting: Tensor | None = None

    def forward(self, scores: Tensor, mask: Tensor | None, other: Tensor | None = None) -> Tensor:
        assert other is not None
        scaled = (scores, other) if self.scale is None else (scores * self.scale, other * self.scale)
        masked = scaled[0] if mask is None else scaled[0] + mask
        shares = torch.softmax(torch.cat((masked, scaled[1]), dim=-1), dim=-1)
        first, self.waiting = torch.split(shares, [scores.shape[-1], other.shape[-1]], dim=-1)
        return first


class SourceWeights(Work):
    """The weights of the source, from a softmax over both."""

    def forward(self, softmax: SoftmaxOfBoth) -> Tensor:
        found, softmax.waiting = softmax.waiting, None
        assert found is not None
        return found


class MergedAttention(Attention):
    """Attention with one softmax over the keys of tokens and of a source, both from the same projections and norm."""

    takes = ("step", "past", "source")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        read = (past.batch, part.kv_heads, past.source, part.head_dim)
        return *super().cache_shapes(part, past), *((read, read) if past.source else ())

    def __init__(self, part: t5gemma2.MergedAttention, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__(part, angles, fused=False, keep_all=keep_all)
        self.caches = (*self.caches, "source_k_cache", "source_v_cache")
        self.source_k_proj, self.source_v_proj = (
            _with_weights_of(projection) for projection in (self.k_proj, self.v_proj)
        )
        self.source_k_norm = None
        if part.qk_norm is not None:
            self.source_k_norm = RMSNorm(part.head_dim, part.qk_norm.eps, part.qk_norm.less_one)
            assert isinstance(self.k_norm, RMSNorm)
            self.source_k_norm.weight = self.k_norm.weight
        self.source_scores, self.source_values = Product(part.group), Product(part.group)
        self.softmax, self.source_softmax = SoftmaxOfBoth(self.scale), SourceWeights()
        self.read: Cache = ()

    def forward(  # type: ignore[override]
        self, x: Tensor, step: Step, past: Cache | None, source: Tensor | None
    ) -> tuple[Tensor, ...]:
        if source is not None:
            made = (self.source_k_proj(source), self.source_v_proj(source))
            k, v = (by_head(rows, self.kv_heads, self.head_dim) for rows in made)
            self.read = (through(self.source_k_norm, k), v)
        elif past is not None:
            self.read = past[2:]
        else:
            raise ValueError("attention to a source needs one, or its cache")
        results = super().forward(x, step, past)
        read, self.read = self.read, ()
        return *results, *read

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, step: Step, old: int) -> Tensor:
        source_k, source_v = self.read
        scores, other = self.scores(q, k.transpose(2, 3)), self.source_scores(q, source_k.transpose(2, 3))
        first = self.softmax(scores, self._mask(step, old), other)
        mixed: Tensor = self.values(first, v) + self.source_values(self.source_softmax(self.softmax), source_v)
        return mixed


def _with_weights_of(owner: Linear) -> Linear:
    """A matmul with another module's weights."""
    other = Linear(owner.in_features, owner.out_features, bias=owner.bias is not None)
    other.weight, other.bias = owner.weight, owner.bias
    return other


class ImageEndEmbedding(Tokens):
    """Token embedding with an additional row for the end-of-image token."""

    def __init__(self, part: t5gemma2.ImageEndEmbedding) -> None:
        super().__init__(part)
        self.image_end = Vector(part.hidden)
