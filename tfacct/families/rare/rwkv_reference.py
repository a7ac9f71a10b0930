"""The reference model's RWKV-4: time mixing and channel mixing.

Peng et al., "RWKV" (arXiv 2305.13048), section 3 and appendix D; transformers' RwkvSelfAttention and RwkvFeedForward.

Shapes: x is (batch, tokens, channels); the sums of a channel are (batch, tokens, channels, 3).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tfacct.families.rare import rwkv
from tfacct.reference.mixing import Mixer, States
from tfacct.reference.modules import Activation, LetThrough, Linear, Weighted
from tfacct.reference.part_module import Past, Shapes

NOTHING = -1e38
"""Exponent of sums over no token: all others are larger."""


class Mixture(Weighted):
    """A weighted mean of a token and the previous token, with a weight per channel."""

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return x * self.weight + before * (1 - self.weight)


def added(one: Tensor, other: Tensor) -> Tensor:
    """Sums over the tokens of both. Sums are (…, 3): of weighted values, of weights, and the exponent of both."""
    exponent = torch.maximum(one[..., 2], other[..., 2])
    shares = [torch.exp(part[..., 2] - exponent).unsqueeze(-1) for part in (one, other)]
    sums = shares[0] * one[..., :2] + shares[1] * other[..., :2]
    return torch.cat((sums, exponent.unsqueeze(-1)), dim=-1)


def alone(key: Tensor, value: Tensor) -> Tensor:
    """Sums over one token."""
    return torch.stack((value, torch.ones_like(value), key), dim=-1)


class Recurrence(Weighted):
    """Sums after each token, each earlier token decayed once more: equation 16 of the paper, in the stable form of its
    appendix D.

    All tokens at once, as a scan whose reach doubles in each round (Hillis and Steele, "Data Parallel Algorithms",
    1986).
    """

    def forward(self, key: Tensor, value: Tensor, before: Tensor) -> Tensor:
        decay, sums = -torch.exp(self.weight), alone(key, value)
        first = added(self._decayed(before.unsqueeze(1), decay), sums[:, :1])
        sums = torch.cat((first, sums[:, 1:]), dim=1)
        reach, tokens = 1, key.shape[1]
        while reach < tokens:
            later = added(self._decayed(sums[:, :-reach], decay * reach), sums[:, reach:])
            sums = torch.cat((sums[:, :reach], later), dim=1)
            reach *= 2
        return sums

    @staticmethod
    def _decayed(sums: Tensor, decay: Tensor) -> Tensor:
        return torch.cat((sums[..., :2], (sums[..., 2] + decay).unsqueeze(-1)), dim=-1)


class Mean(Weighted):
    """Weighted mean of the values of earlier tokens, and of the token itself, whose key has a bonus."""

    def forward(self, before: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sums = added(before, alone(key + self.weight, value))
        return sums[..., 0] / sums[..., 1]


def shifted(x: Tensor, past: States | None) -> tuple[Tensor, Tensor]:
    """The previous token of each, and the last token, which is the next state."""
    first = torch.zeros_like(x[:, :1]) if past is None else past[0].unsqueeze(1)
    return torch.cat((first, x.narrow(1, 0, x.shape[1] - 1)), dim=1), x[:, -1].clone()


class TimeMix(Mixer):
    """Weighted means of the values of all tokens so far."""

    caches = ("shift_state", "sum_state")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shapes of the last token, and of the sums of each channel with their exponent."""
        return (past.batch, part.hidden), (past.batch, part.inner, 3)

    def __init__(self, part: rwkv.TimeMix) -> None:
        super().__init__()
        hidden, inner = part.hidden, part.inner
        self.k_mix, self.v_mix, self.r_mix = Mixture(hidden), Mixture(hidden), Mixture(hidden)
        self.k_proj, self.v_proj, self.r_proj = (Linear(hidden, inner, bias=False) for _ in "kvr")
        self.recurrence, self.mean, self.gate = Recurrence(inner), Mean(inner), LetThrough()
        self.o_proj = Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, the last token, and the sums after it."""
        before, last = shifted(x, past)
        key, value = self.k_proj(self.k_mix(x, before)), self.v_proj(self.v_mix(x, before))
        gate = self.r_proj(self.r_mix(x, before))
        if past is None:
            nothing = torch.zeros_like(key[:, 0])
            old = torch.stack((nothing, nothing, nothing + NOTHING), dim=-1)
        else:
            old = past[1]
        sums = self.recurrence(key, value, old)
        earlier = torch.cat((old.unsqueeze(1), sums.narrow(1, 0, x.shape[1] - 1)), dim=1)
        out: Tensor = self.o_proj(self.gate(self.mean(earlier, key, value), gate))
        # A copy, because a view would keep all of them alive.
        return out, last, sums[:, -1].clone()


class ChannelMix(Mixer):
    """A gated MLP."""

    caches = ("shift_state",)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """The last token."""
        return ((past.batch, part.hidden),)

    def __init__(self, part: rwkv.ChannelMix) -> None:
        super().__init__()
        self.k_mix, self.r_mix = Mixture(part.hidden), Mixture(part.hidden)
        self.up_proj = Linear(part.hidden, part.width, bias=False)
        self.act = Activation("relu2")
        self.down_proj = Linear(part.width, part.hidden, bias=False)
        self.r_proj = Linear(part.hidden, part.hidden, bias=False)
        self.gate = LetThrough()

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor]:
        """Result, and the last token."""
        before, last = shifted(x, past)
        out = self.down_proj(self.act(self.up_proj(self.k_mix(x, before))))
        return self.gate(out, self.r_proj(self.r_mix(x, before))), last
