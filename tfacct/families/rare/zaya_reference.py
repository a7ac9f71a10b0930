"""The reference model's parts of ZAYA1.

Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.families.rare import zaya
from tfacct.reference import residual
from tfacct.reference.attention import Attention, Cache, appended, by_head
from tfacct.reference.compressed import GroupedLinear
from tfacct.reference.experts import Experts
from tfacct.reference.mixing import Convolution
from tfacct.reference.modules import Activation, Add, Linear, RMSNorm, Tokens, Weighted, Work
from tfacct.reference.part_module import Past, Shapes
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


class Affine(Work):
    """A learned shift, then a learned scale (ZayaResidualScaling)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(hidden)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.bias) * self.weight


class AffineEmbedding(Tokens):
    """Token embedding with shift and scale."""

    def __init__(self, part: zaya.AffineEmbedding) -> None:
        super().__init__(part)
        self.shift = Affine(part.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        rows: Tensor = self.shift(super().forward(tokens))
        return rows


class AffineResidual(residual.Residual):
    """A result and the residual stream, both scaled and shifted, added."""

    def __init__(self, part: zaya.AffineResidual) -> None:
        super().__init__(part)
        self.gate, self.stream_gate = Affine(part.hidden), Affine(part.hidden)


class HeadMean(Work):
    """Means of each query and its key, or of these means over the queries of each key."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, one: Tensor, other: Tensor | None = None) -> Tensor:
        """Heads of shape (batch, tokens, heads, size): queries and keys, or means of both."""
        if other is None:
            return torch.unflatten(one, 2, (-1, self.group)).mean(dim=3)
        keys = other.unsqueeze(3).expand(-1, -1, -1, self.group, -1)
        return (torch.unflatten(one, 2, (-1, self.group)) + keys).flatten(2, 3) * 0.5


class Unit(Work):
    """Heads scaled to a length of √size."""

    def forward(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        out: Tensor = x * (x.shape[-1] ** 0.5 / length.clamp_min(torch.finfo(x.dtype).eps))
        return out


class HeadScale(Weighted):
    """Keys of shape (batch, tokens, heads, size), times a learned factor per head."""

    def forward(self, k: Tensor) -> Tensor:
        return k * self.weight.unsqueeze(1)


class MixingConvolution(GroupedLinear):
    """Convolution over tokens that mixes the channels of each head, unfolded into one matmul per head."""

    def __init__(self, heads: int, size: int, kernel: int) -> None:
        super().__init__(heads, size * kernel, size)
        self.kernel, self.size = kernel, size
        self.bias = nn.Parameter(torch.empty(heads * size))

    def forward(self, x: Tensor) -> Tensor:
        """Convolved tokens; `x`, of shape (batch, tokens, channels), begins kernel − 1 tokens earlier."""
        tokens = x.shape[1] - self.kernel + 1
        place = torch.arange(tokens, device=x.device)[:, None] + torch.arange(self.kernel, device=x.device)
        windows = torch.unflatten(x.index_select(1, place.reshape(-1)), 1, (tokens, self.kernel))
        by_head_ = torch.unflatten(windows, 3, (self.groups, self.size)).permute(0, 1, 3, 4, 2).flatten(3)
        return super().forward(by_head_) + self.bias


class CCA(Attention):
    """Compressed convolutional attention, as in transformers' ZayaAttention."""

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        channels = (part.heads + part.kv_heads) * part.head_dim
        states = (past.batch, channels, part.first + part.second), (past.batch, part.kv_heads * part.half)
        return *states, *super().cache_shapes(part, past)

    def __init__(self, part: zaya.CCA, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__(part, angles, fused=False, keep_all=keep_all)
        self.caches = ("conv_state", "v_state", *self.caches)
        halves = part.kv_heads * part.half
        self.v_proj, self.late_v_proj = (Linear(part.hidden, halves, bias=part.qkv_bias) for _ in range(2))
        self.q_mean, self.k_mean = HeadMean(part.group), HeadMean(part.group)
        channels = self.queries + self.keys
        self.conv = Convolution(channels, part.first + 1, bias=True)
        self.conv_again = Convolution(channels, part.first + 1, bias=False)
        self.conv_again.weight = self.conv.weight
        self.mixing_conv = MixingConvolution(part.heads + part.kv_heads, part.head_dim, part.second + 1)
        self.q_add, self.k_add = Add(), Add()
        self.q_norm, self.k_norm, self.k_factor = Unit(), Unit(), HeadScale(part.kv_heads)
        self.before, self.again = part.first + part.second, part.second

    def forward(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, ...]:
        made = self.q_proj(x), self.k_proj(x)
        q, k = (self._rows(rows) for rows in made)
        mean = self.q_mean(q, k)
        convolved, last = self._convolved(torch.cat(made, dim=-1), past)
        more = torch.split(convolved, [self.queries, self.keys], dim=-1)
        q, k = self.q_add(self._rows(more[0]), mean), self.k_add(self._rows(more[1]), self.k_mean(mean))
        assert self.q_norm is not None and self.k_norm is not None
        q, k = self.q_norm(q).transpose(1, 2), self.k_factor(self.k_norm(k)).transpose(1, 2)
        v, late = self._values(x, past)
        if self.angles is not None:
            q, k = self._rotated(self.q_rotary, q, step), self._rotated(self.k_rotary, k, step)
        old = 0 if past is None else past[2].shape[2]
        k, v = appended(past and past[2:], k, v)
        return self._result(x, q, k, v, step, old), last, late, self._cached_heads(k), self._cached_heads(v)

    def _rows(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 2, (-1, self.head_dim))

    def _convolved(self, both: Tensor, past: Cache | None) -> tuple[Tensor, Tensor]:
        """Queries and keys after both convolutions, and the last ones before them, which are a state."""
        batch, tokens, channels = both.shape
        first = both.new_zeros(batch, self.before, channels) if past is None else past[0].transpose(1, 2)
        seen = torch.cat((first, both), dim=1)
        again = self.conv_again(seen.narrow(1, 0, self.before)) + self.conv.bias
        new = self.conv(seen.narrow(1, self.again, self.before - self.again + tokens))
        last = seen.narrow(1, tokens, self.before).transpose(1, 2).clone()
        return self.mixing_conv(torch.cat((again, new), dim=1)), last

    def _values(self, x: Tensor, past: Cache | None) -> tuple[Tensor, Tensor]:
        """Values, half of each from the previous token, and the half of the last token that the next one reads."""
        now, made = self.v_proj(x), self.late_v_proj(x)
        if past is not None:
            first = past[1].unsqueeze(1)
        else:  # the result of a projection of zeros
            bias = self.late_v_proj.bias
            first = torch.zeros_like(made[:, :1]) if bias is None else bias.expand_as(made[:, :1])
        late = torch.cat((first, made), dim=1).narrow(1, 0, made.shape[1])
        values = by_head(torch.cat((now, late), dim=-1), self.kv_heads, self.head_dim)
        return values, made[:, -1].clone()


class RouterState(Weighted):
    """Router projection plus the router state of the previous layer, times learned factors."""

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return x + before * self.weight


class MLPRouter(nn.Module):
    """A router that is an MLP (ZayaRouter). Its state is carried to the next layer's router."""

    def __init__(self, part: zaya.MLPRoutedExperts) -> None:
        super().__init__()
        width, choices = part.router_width, part.experts if part.idle is None else part.experts + part.idle
        self.down_proj = Linear(part.hidden, width, bias=True)
        self.follow = RouterState(width) if part.follows else None
        self.norm = RMSNorm(width, part.router_eps)
        self.fc1, self.fc2 = (Linear(width, width, bias=True) for _ in range(2))
        self.act1, self.act2 = (Activation("gelu") for _ in range(2))
        self.out_proj = Linear(width, choices, bias=False)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        x = self.down_proj(x)
        if self.follow is not None:
            x = self.follow(x, step.carried["router"])
        step.carried["router"] = x.clone()
        x = self.act1(self.fc1(self.norm(x)))
        scores: Tensor = self.out_proj(self.act2(self.fc2(x)))
        return scores


class MLPRoutedExperts(Experts):
    """Experts whose router is an MLP."""

    def __init__(self, part: zaya.MLPRoutedExperts) -> None:
        super().__init__(part)
        self.router = MLPRouter(part)

    def _scores(self, x: Tensor, step: Step) -> Tensor:
        scores: Tensor = self.router(x, step)
        return scores
