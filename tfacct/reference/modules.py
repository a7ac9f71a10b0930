"""The reference model's modules: one named module per product, linear layers and `@` only.

Counters see a product by the module that runs it, so a module's name is the path of a line in the ledger.
Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tfacct import parts


class Linear(nn.Linear):
    """A product with a weight. Its numbers are set by whoever runs it: on meta it has none to set."""

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """A table that is read by row."""

    def reset_parameters(self) -> None:
        pass


class Scale(nn.Module):
    """Times a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Tokens(Embedding):
    """The token table, its rows scaled where the part says so."""

    def __init__(self, part: parts.Embedding) -> None:
        super().__init__(part.vocab, part.hidden)
        self.scale = Scale(part.hidden**0.5) if part.scaled else None

    def forward(self, tokens: Tensor) -> Tensor:
        rows = super().forward(tokens)
        return rows if self.scale is None else self.scale(rows)


class Product(nn.Module):
    """A product of two activations: every query head with its own view of the key/value head it shares."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        batch, kv_heads, rows, columns = right.shape
        shared = right.unsqueeze(2).expand(batch, kv_heads, self.group, rows, columns)
        return left @ shared.reshape(batch, kv_heads * self.group, rows, columns)


class Add(nn.Module):
    """A sublayer's result added to the stream."""

    def forward(self, stream: Tensor, result: Tensor) -> Tensor:
        return stream + result


class RMSNorm(nn.Module):
    """x / rms(x), scaled. `less_one`: the weight is the scale less 1."""

    def __init__(self, hidden: int, eps: float, less_one: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))
        self.eps, self.less_one = eps, less_one

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight + 1 if self.less_one else self.weight
        return nn.functional.rms_norm(x, scale.shape, scale, self.eps)


class LayerNorm(nn.LayerNorm):
    """(x − mean) / deviation, scaled and shifted."""

    def reset_parameters(self) -> None:
        pass


def norm(part: parts.Norm) -> nn.Module:
    """LayerNorm or RMSNorm."""
    if part.kind == "layer":
        return LayerNorm((part.hidden,), part.eps)
    return RMSNorm(part.hidden, part.eps, part.less_one)


class Softmax(nn.Module):
    """Scaled and masked attention weights."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        scaled = scores * self.scale
        return torch.softmax(scaled if mask is None else scaled + mask, dim=-1)


class Rotary(nn.Module):
    """Each half of a head turned by its position. The sine comes with the sign of each half's share of the other."""

    def forward(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        *outer, size = heads.shape
        left, right = heads.view(*outer, 2, size // 2).unbind(-2)  # `chunk` would ask whether the halves are equal
        return heads * cos + torch.cat((right, left), dim=-1) * sin


@dataclass(frozen=True, slots=True)
class Step:
    """What every block of one forward pass shares: the causal mask to add, and the angles of the new positions."""

    mask: Tensor | None
    turn: tuple[Tensor, Tensor] | None


class Attention(nn.Module):
    """Causal self-attention of the new tokens over a cache and themselves.

    `fused` runs torch's scaled_dot_product_attention instead of scores, softmax and values: faster, same result,
    and not for counting, because counters see nothing in it.
    """

    def __init__(self, part: parts.Attention, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.fused = part.heads, part.kv_heads, part.head_dim, fused
        queries, keys = part.heads * part.head_dim, part.kv_heads * part.head_dim
        self.q_proj = Linear(part.hidden, queries, bias=part.qkv_bias)
        self.k_proj = Linear(part.hidden, keys, bias=part.qkv_bias)
        self.v_proj = Linear(part.hidden, keys, bias=part.qkv_bias)
        self.o_proj = Linear(queries, part.hidden, bias=part.out_bias)
        self.scores, self.values = Product(part.group), Product(part.group)
        self.softmax = Softmax(part.head_dim)
        normed = part.qk_norm_eps is not None
        self.q_norm = RMSNorm(part.head_dim, part.qk_norm_eps or 0.0) if normed else None
        self.k_norm = RMSNorm(part.head_dim, part.qk_norm_eps or 0.0) if normed else None
        self.q_rotary = None if part.rotary is None else Rotary()
        self.k_rotary = None if part.rotary is None else Rotary()

    def forward(self, x: Tensor, step: Step, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        q = self._split(self.q_proj(x), self.heads)
        k = self._split(self.k_proj(x), self.kv_heads)
        v = self._split(self.v_proj(x), self.kv_heads)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.q_rotary is not None and self.k_rotary is not None and step.turn is not None:
            q, k = self.q_rotary(q, *step.turn), self.k_rotary(k, *step.turn)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=step.mask, is_causal=step.mask is None and bool(q.shape[2] > 1), enable_gqa=True
            )
        else:
            weights = self.softmax(self.scores(q, k.transpose(2, 3)), step.mask)
            mixed = self.values(weights, v)
        return self.o_proj(mixed.transpose(1, 2).flatten(2)), k, v

    def _split(self, x: Tensor, heads: int) -> Tensor:
        batch, tokens, _ = x.shape
        return x.view(batch, tokens, heads, self.head_dim).transpose(1, 2)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "gelu_new": partial(nn.functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(nn.functional.gelu, approximate="tanh"),
    "relu": nn.functional.relu,
    "silu": nn.functional.silu,
    "swish": nn.functional.silu,
}
"""By the names that configs use."""


class Activation(nn.Module):
    """The activation of one projection, or of a gate, times what the gate lets through.

    One that is not known stands for any: on meta all have the same shape, and `build` refuses it elsewhere.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = ACTIVATIONS.get(name, nn.functional.silu)

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        return self.function(x) if gate is None else self.function(gate) * x


class FeedForward(nn.Module):
    """Up, activation, down; with a gate beside up where the part is gated."""

    def __init__(self, part: parts.FeedForward) -> None:
        super().__init__()
        self.gate_proj = Linear(part.hidden, part.width, bias=part.bias) if part.gated else None
        self.up_proj = Linear(part.hidden, part.width, bias=part.bias)
        self.act = Activation(part.activation)
        self.down_proj = Linear(part.width, part.hidden, bias=part.bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = None if self.gate_proj is None else self.gate_proj(x)
        out: Tensor = self.down_proj(self.act(self.up_proj(x), gate))
        return out


class Positions(Embedding):
    """A learned table of absolute positions, added to the token's row."""

    def __init__(self, part: parts.Positions) -> None:
        super().__init__(part.rows, part.hidden)
        self.add = Add()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        out: Tensor = self.add(x, super().forward(positions))
        return out
