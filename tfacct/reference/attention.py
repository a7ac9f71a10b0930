"""The reference model's attention: grouped queries, windows, and keys and values from a latent.

Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size), latents a single head of them.
"""

from __future__ import annotations

import math
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.distances import LayerBias
from tfacct.reference.modules import (
    Add,
    ChannelScale,
    LayerNorm,
    Linear,
    PlainRMSNorm,
    Product,
    RMSNorm,
    Scale,
    Softcap,
    Weighted,
    Work,
    through,
)
from tfacct.reference.part_module import PartModule, Past, Shapes, family_module
from tfacct.reference.rotary import Angles, Rotary, rotated
from tfacct.reference.step import Step

Cache: TypeAlias = tuple[Tensor, ...]
"""Cached tensors of a layer: keys and values, or a latent and the rotary part of keys; then an indexer's keys."""


class Softmax(Work):
    """Scaled and masked attention weights. A sink gets its share of the softmax and is dropped (transformers'
    GptOssAttention)."""

    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, scores: Tensor, mask: Tensor | None, sinks: Tensor | None = None) -> Tensor:
        scaled = scores if self.scale is None else scores * self.scale
        masked = scaled if mask is None else scaled + mask
        if sinks is None:
            return torch.softmax(masked, dim=-1)
        return torch.softmax(torch.cat((masked, sinks), dim=-1), dim=-1).narrow(-1, 0, scores.shape[-1])


class Distance(Work):
    """Elementwise distances of queries and keys, |q − k|, which are not a matmul. The largest is the score."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Distances of shape (batch, heads, tokens, size, keys), from keys transposed as for a matmul."""
        batch, kv_heads, size, count = keys.shape
        shared = keys.unsqueeze(2).expand(batch, kv_heads, self.group, size, count)
        return (queries.unsqueeze(-1) - shared.reshape(batch, kv_heads * self.group, 1, size, count)).abs()


class Sinks(Weighted):
    """One learned score per head, for every query."""

    def forward(self, batch: int, tokens: int) -> Tensor:
        return self.weight.view(1, -1, 1, 1).expand(batch, -1, tokens, 1).clone()


class Alibi(Work):
    """Scaled scores, reduced by a slope per head times the distance of the key.

    Press et al. (arXiv 2108.12409), section 3. Only differences between keys matter to the softmax, so the slope is
    multiplied by the key's position, as in transformers' BLOOM (`build_alibi_tensor`). Bidirectional attention uses the
    absolute distance (JinaBERT's code).
    """

    def __init__(self, heads: int, scale: float, *, causal: bool) -> None:
        super().__init__()
        self.scale, self.slopes, self.causal = scale, slopes(heads), causal

    def forward(self, scores: Tensor) -> Tensor:
        keys = torch.arange(scores.shape[-1], device=scores.device, dtype=scores.dtype)
        places = keys if self.causal else -(keys - keys[:, None]).abs()
        return scores * self.scale + self.slopes.to(scores.device, scores.dtype)[:, None, None] * places


def slopes(heads: int) -> Tensor:
    """Slope of each head: powers of 2^(−8/n) for n heads, a power of two; further heads use every other slope of twice
    as many heads.

    Press et al. (arXiv 2108.12409), section 3; other numbers of heads as in transformers' BLOOM, `build_alibi_tensor`.
    """
    if torch.get_default_device().type == "meta" or not isinstance(heads, int):
        return torch.empty(heads)
    power_of_two = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * i / power_of_two) for i in range(1, power_of_two + 1)]
    more = [2 ** (-4 * i / power_of_two) for i in range(1, 2 * (heads - power_of_two) + 1, 2)]
    return torch.tensor(first + more, dtype=torch.float64)


class Clip(Work):
    """Clamped elements (transformers' OlmoAttention)."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(-self.bound, self.bound)


class Temperature(Work):
    """Queries times a factor of their position (transformers' Ministral3Attention, `get_llama_4_attn_scale`)."""

    def __init__(self, part: parts.Temperature) -> None:
        super().__init__()
        self.beta, self.length, self.first = part.beta, part.length, part.first

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        counted = positions.to(q.device, q.dtype) + self.first
        factor = 1 + self.beta * torch.log(1 + torch.floor(counted / self.length))
        return q * factor[:, None]


class HeadsNorm(Work):
    """LayerNorm of each head, with a scale per head (transformers' CohereAttention), and a shift per head
    (ChameleonLayerNorm)."""

    def __init__(self, heads: int, size: int, eps: float, *, shift: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, size))
        self.bias = nn.Parameter(torch.empty(heads, size)) if shift else None
        self.size, self.eps = size, eps

    def forward(self, x: Tensor) -> Tensor:
        normed = nn.functional.layer_norm(x, (self.size,), None, None, self.eps) * self.weight[:, None]
        return normed if self.bias is None else normed + self.bias[:, None]


def qk_norm(part: parts.QKNorm, heads: int, head_dim: int) -> nn.Module:
    """Norm of query or key heads."""
    if part.per_head:
        return HeadsNorm(heads, head_dim, part.eps, shift=part.shift)
    size = heads * head_dim if part.together else head_dim
    if not part.learned:
        return PlainRMSNorm(size, part.eps)
    if part.kind == "layer":
        return LayerNorm((size,), part.eps, bias=part.shift)
    return RMSNorm(size, part.eps, part.less_one)


class OutputGate(Work):
    """Output gate: the heads' outputs times a gate per element, or per head."""

    def __init__(self, part: parts.Gate, head_dim: int) -> None:
        super().__init__()
        self.size = 1 if part.of == "elements" else head_dim
        self.act = torch.sigmoid if part.act == "sigmoid" else nn.functional.softplus

    def forward(self, mixed: Tensor, gate: Tensor) -> Tensor:
        gate = self.act(gate)
        if self.size == 1:
            return mixed * gate
        return (torch.unflatten(mixed, 2, (-1, self.size)) * gate.unsqueeze(-1)).flatten(2)


def by_head(x: Tensor, heads: int, size: int) -> Tensor:
    """Heads of shape (batch, heads, tokens, size), from rows of shape (batch, tokens, heads · size)."""
    return torch.unflatten(x, 2, (heads, size)).transpose(1, 2)


def appended(past: Cache | None, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, or both parts of a latent, of cached and new tokens."""
    if past is None:
        return first, second
    return torch.cat((past[0], first), dim=2), torch.cat((past[1], second), dim=2)


def in_window(cached: Tensor, window: int | None, keep_all: bool) -> Tensor:
    """The part of cached keys, values or latents that a later token will see."""
    if window is None or keep_all or cached.shape[2] <= window:
        return cached
    return cached[:, :, cached.shape[2] - window :].clone()  # a view would keep all of them alive


class Heads(PartModule):
    """Query heads that share key/value heads: projections, scores and values."""

    takes: tuple[str, ...] = ("step", "past")

    def __init__(self, part: parts.Attention | parts.CrossAttention) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = part.heads, part.kv_heads, part.head_dim
        self.scale = part.head_dim**-0.5 if part.scale is None else part.scale
        self.queries, self.keys = part.heads * part.head_dim, part.kv_heads * part.head_dim
        self.value_dim = getattr(part, "value_dim", None) or part.head_dim
        wide = part.hidden * 2 if isinstance(part, parts.JoinedAttention) else part.hidden
        self.q_proj = Linear(wide, self.queries, bias=part.qkv_bias)
        source = part.source_hidden if isinstance(part, parts.CrossAttention) else None
        read = wide if source is None else source
        self.k_proj = Linear(read, self.keys, bias=part.qkv_bias and part.key_bias)
        self.v_proj = Linear(read, part.kv_heads * self.value_dim, bias=part.qkv_bias)
        self.o_proj = Linear(part.heads * self.value_dim, part.hidden, bias=part.out_bias)
        self.far = part.score_function == "distance"
        self.scores = Distance(part.group) if self.far else Product(part.group)
        self.values = Product(part.group)

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of new tokens."""
        q, k = self.q_proj(x), self.k_proj(x)
        return q, k, k if self.v_proj is None else self.v_proj(x)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return by_head(x, heads, self.head_dim)

    def _scored(self, q: Tensor, k: Tensor) -> Tensor:
        """Score of each query and key: their dot product, or their largest distance."""
        scores: Tensor = self.scores(q, k.transpose(2, 3))
        return scores.amax(dim=-2) if self.far else scores


class Attention(Heads):
    """Self-attention of the new tokens over the cache and themselves; if it is not causal, it has no cache.

    `fused` runs torch's scaled_dot_product_attention instead of scores, softmax and values if possible: faster, with
    the same result, but not for counting, because counters see nothing in it. `keep_all` also caches keys outside the
    window.
    """

    @classmethod
    def built(cls, part: Any, angles: Angles | None, *, fused: bool, keep_all: bool) -> Self:
        return cls(part, angles, fused=fused, keep_all=keep_all)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        if not part.has_cache:
            return ()
        size = part.head_dim if part.value_dim is None else part.value_dim
        index: Shapes = () if part.indexer is None else ((past.batch, 1, past.tokens, part.indexer.head_dim),)
        sizes = (past.batch, part.kv_heads, past.tokens)
        return (*sizes, part.head_dim), (*sizes, size), *index

    def __init__(self, part: parts.Attention, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__(part)
        self.window, self.keep_all, self.angles, self.rope_dim = part.window, keep_all, angles, part.rope_dim
        self.causal, self.borrowed, self.tiles = part.causal, part.borrowed, part.tiles
        self.caches = ("k_cache", "v_cache") if part.has_cache else ()
        self.indexer = None
        if part.indexer is not None:
            self.indexer = family_module(part.indexer)(part, angles)
            self.caches = (*self.caches, "index_cache")
        if part.borrowed:
            self.k_proj = None  # type: ignore[assignment]
        if part.borrowed or part.keys_as_values:
            self.v_proj = None  # type: ignore[assignment]
        added = part.softcap or part.alibi or part.distance_bias
        plain = part.indexer is None and not part.sinks and not added
        self.chunked = part.mask == "chunks"
        self.fused = fused and plain and not self.chunked and not self.far
        self.gate_proj = self.gate = None
        if part.gate is not None:
            gates = self.queries if part.gate.of == "elements" else part.heads
            self.gate_proj = Linear(part.hidden, gates, bias=part.qkv_bias and part.gate.bias)
            self.gate = OutputGate(part.gate, part.head_dim)
        self.together = part.qk_norm is not None and part.qk_norm.together
        self.late = part.qk_norm is not None and part.qk_norm.late
        self.q_norm = self.k_norm = self.q_rotary = self.k_rotary = None
        if part.qk_norm is not None:
            self.q_norm = qk_norm(part.qk_norm, part.heads, part.head_dim)
            self.k_norm = qk_norm(part.qk_norm, part.kv_heads, part.head_dim)
        self.k_scale = None if part.scales.keys is None else Scale(part.scales.keys)
        self.v_scale = None if part.scales.values is None else Scale(part.scales.values)
        self.v_norm = None if part.value_norm is None else PlainRMSNorm(part.head_dim, part.value_norm)
        if part.borrowed:
            self.k_norm = self.v_norm = None
        self.q_clip, self.k_clip, self.v_clip = (None if part.clip is None else Clip(part.clip) for _ in range(3))
        self.q_scale = None if part.scales.queries is None else Temperature(part.scales.queries)
        if part.rotary is not None:
            size = part.head_dim if part.rope_dim is None else part.rope_dim
            self.q_rotary, self.k_rotary = Rotary(part.rotary, size), Rotary(part.rotary, size)
        self.softcap = None if part.softcap is None else Softcap(part.softcap, self.scale)
        self.alibi = Alibi(part.heads, self.scale, causal=part.causal) if part.alibi else None
        self.rel_bias: nn.Module | None = None
        bias = part.distance_bias
        if bias is not None:
            self.rel_bias = Add() if bias.buckets is None else LayerBias(bias, part.heads, both_ways=not part.causal)
        self.sinks = Sinks(part.heads) if part.sinks else None
        self.head_norm = self.read_norm = None
        if part.read_norm is not None and part.read_norm.together:
            self.read_norm = RMSNorm(part.heads * self.value_dim, part.read_norm.eps)
        elif part.read_norm is not None:
            self.head_norm = PlainRMSNorm(self.value_dim, part.read_norm.eps)
        self.channel_scale = ChannelScale(part.hidden) if part.channel_scale else None
        scaled = self.softcap is not None or self.alibi is not None or self.rel_bias is not None  # before the softmax
        self.softmax = Softmax(None if scaled else self.scale)

    def forward(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, ...]:
        if self.borrowed:
            assert step.lent is not None
            k, v = step.lent[self.window]
            q = through(self.q_norm, self._split(self.q_proj(x), self.heads))
            q = q if self.angles is None else self._rotated(self.q_rotary, q, step)
            return (self._result(x, q, k, v, step, k.shape[2] - q.shape[2]),)
        q, k, v = self._qkv(x)
        k, v = through(self.k_scale, k), through(self.v_scale, v)
        if self.together:
            q, k = through(self.q_norm, q), through(self.k_norm, k)
        q, k, v = through(self.q_clip, q), through(self.k_clip, k), through(self.v_clip, v)
        q, k, v = self._split(q, self.heads), self._split(k, self.kv_heads), by_head(v, self.kv_heads, self.value_dim)
        if not self.together and not self.late:
            q, k = through(self.q_norm, q), through(self.k_norm, k)
        v = through(self.v_norm, v)
        if self.angles is not None:
            q, k = self._rotated(self.q_rotary, q, step), self._rotated(self.k_rotary, k, step)
        if self.late:
            q, k = through(self.q_norm, q), through(self.k_norm, k)
        if self.q_scale is not None:
            q = self.q_scale(q, step.positions)
        old = 0 if past is None else past[0].shape[2]
        k, v = appended(past, k, v)
        if step.lent is not None:
            step.lent[self.window] = (k, v)
        index = None if self.indexer is None else self.indexer(x, step, past[2] if past is not None else None)
        result = self._result(x, q, k, v, step, old)
        if index is not None:
            return result, k, v, index
        return (result, self._cached_heads(k), self._cached_heads(v)) if self.caches else (result,)

    def _result(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, step: Step, old: int) -> Tensor:
        mixed = self._mixed(q, k, v, step, old).transpose(1, 2)
        mixed = through(self.head_norm, mixed).flatten(2)
        if self.gate is not None and self.gate_proj is not None:
            mixed = self.gate(mixed, self.gate_proj(x))
        result: Tensor = self.o_proj(through(self.read_norm, mixed))
        return through(self.channel_scale, result)

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, step: Step, old: int) -> Tensor:
        if self.tiles is None:
            return self._of_all(q, k, v, step, old)
        batch, each = q.shape[0], (q.shape[2] // self.tiles, self.tiles)  # windows are next to sequences
        q, k, v = (torch.unflatten(x, 2, each).transpose(1, 2).flatten(0, 1) for x in (q, k, v))
        mixed = self._of_all(q, k, v, step, old)
        return torch.unflatten(mixed, 0, (batch, each[0])).transpose(1, 2).flatten(2, 3)

    def _of_all(self, q: Tensor, k: Tensor, v: Tensor, step: Step, old: int) -> Tensor:
        if self.fused:
            return self._fused(q, k, v, step, old)
        scores = through(self.alibi, through(self.softcap, self._scored(q, k)))
        if self.rel_bias is not None:
            per_layer = isinstance(self.rel_bias, LayerBias)
            scores = self.rel_bias(scores * self.scale, step.positions if per_layer else step.bias)
        sinks = None if self.sinks is None else self.sinks(q.shape[0], q.shape[2])
        mask = self._mask(step, old)
        return self.values(self.softmax(scores, mask, sinks), v)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, step: Step, old: int) -> Tensor:
        in_window = self.window is None or old < self.window  # all cached keys are inside the window
        alone = (not self.causal and self.window is None) or (q.shape[2] == 1 and in_window and self.causal)
        causal = self.causal and old == 0 and self.window is None  # neither needs a mask
        mask = None if alone or causal else self._mask(step, old)
        return nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal and not alone, scale=self.scale, enable_gqa=True
        )

    def _mask(self, step: Step, old: int) -> Tensor | None:
        """Mask of the scores; None if every token sees all tokens."""
        if self.indexer is not None and step.chosen is not None:
            return step.chosen
        if self.causal:
            if self.chunked and self.window is not None:
                return step.chunk(old, self.window)
            return step.mask(old, self.window)
        return None if self.window is None else step.around(self.window)

    def _rotated(self, rotary: nn.Module | None, heads: Tensor, step: Step) -> Tensor:
        assert rotary is not None and self.angles is not None
        cos_sin = step.cos_sin(self.angles)
        return rotary(heads, *cos_sin) if self.rope_dim is None else rotated(rotary, heads, cos_sin, self.rope_dim)

    def _cached_heads(self, heads: Tensor) -> Tensor:
        return in_window(heads, self.window, self.keep_all)
