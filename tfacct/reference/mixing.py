"""Modules in place of attention in the reference model: their base class, and the short convolution.

Shapes: x is (batch, tokens, channels).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import by_head
from tfacct.reference.modules import Linear, Times, Work
from tfacct.reference.part_module import PartModule, Past, Shapes

States: TypeAlias = tuple[Tensor, ...]
"""Cached tensors of a mixer, in the order of its `caches`."""


class Mixer(PartModule):
    """A module that mixes tokens in place of attention, and has states of fixed size in the cache."""

    takes: tuple[str, ...] = ("past",)


def decayed_sums(added: Tensor, decay: Tensor, before: Tensor | None) -> Tensor:
    """Sum after each token, hₜ = decayₜ · hₜ₋₁ + addedₜ, starting from the sum `before` the first one, if any.

    All tokens at once, as a scan whose reach doubles in each round (Hillis and Steele, "Data Parallel Algorithms",
    1986): the decay of the later half of a range applies to the sum of the earlier half.
    """
    sums = added
    if before is not None:
        sums = torch.cat((sums[:, :1] + decay[:, :1] * before.unsqueeze(1), sums[:, 1:]), dim=1)
    reach, tokens = 1, added.shape[1]
    while reach < tokens:
        carried = decay[:, reach:] * sums[:, :-reach]
        sums = torch.cat((sums[:, :reach], sums[:, reach:] + carried), dim=1)
        decay = torch.cat((decay[:, :reach], decay[:, reach:] * decay[:, :-reach]), dim=1)
        reach *= 2
    return sums


class Convolution(nn.Module):
    """Depthwise convolution: each channel's last tokens times its own weights, unfolded into one matmul per channel."""

    def __init__(self, channels: int, kernel: int, bias: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.empty(channels, kernel))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None

    def over(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor]:
        """Convolved tokens, and the last ones, (batch, channels, kernel), the first state of a mixer."""
        batch, tokens, channels = x.shape
        before = x.new_zeros(batch, self.kernel, channels) if past is None else past[0].transpose(1, 2)
        seen = torch.cat((before, x), dim=1)
        out: Tensor = self(seen.narrow(1, 1, self.kernel - 1 + tokens))
        # A copy, because a view would keep all of them alive.
        return out, seen.narrow(1, tokens, self.kernel).transpose(1, 2).clone()

    def forward(self, x: Tensor) -> Tensor:
        """Convolved tokens; `x` begins kernel − 1 tokens earlier."""
        batch, there, channels = x.shape
        tokens = there - self.kernel + 1
        place = torch.arange(tokens, device=x.device)[:, None] + torch.arange(self.kernel, device=x.device)
        windows = x.index_select(1, place.reshape(-1)).view(batch, tokens, self.kernel, channels)
        by_channel = windows.permute(3, 0, 1, 2).reshape(channels, batch * tokens, self.kernel)
        sums = by_channel @ self.weight.unsqueeze(-1)
        out = sums.view(channels, batch, tokens).permute(1, 2, 0)
        return out if self.bias is None else out + self.bias


class PairDecay(Work):
    """Decay between each two tokens of a chunk, 0 for a later one, from cumulative logarithms. With several channels,
    the channel axis comes before the tokens."""

    def forward(self, sums: Tensor) -> Tensor:
        return (sums.unsqueeze(-1) - sums.unsqueeze(-2)).tril().exp().tril()


class Passed(Work):
    """State after a chunk: the previous state, decayed, plus what the chunk writes."""

    def forward(self, state: Tensor, decay: Tensor, written: Tensor) -> Tensor:
        return state * decay + written


def chunked(x: Tensor, chunk: int) -> Tensor:
    """Tokens of each head, padded with zeros to whole chunks: (batch, heads, chunks, tokens of a chunk, size)."""
    batch, heads, tokens, size = x.shape
    chunks = int(-(-tokens // chunk))
    x = torch.cat((x, x.new_zeros(batch, heads, chunks * chunk - tokens, size)), dim=2)
    return torch.unflatten(x, 2, (chunks, chunk))


def in_groups(x: Tensor, groups: int, size: int, group: int) -> Tensor:
    """Vectors of each head, (batch, groups · group, tokens, size): those of one group are equal."""
    vectors = by_head(x, groups, size).unsqueeze(2)
    return vectors.expand(-1, -1, group, -1, -1).flatten(1, 2)


def by_chunk(product: nn.Module, left: Tensor, right: Tensor) -> Tensor:
    """A matmul in every chunk of every head."""
    return torch.unflatten(product(left.flatten(1, 2), right.flatten(1, 2)), 1, (left.shape[1], left.shape[2]))


class ShortConvolution(Mixer):
    """Gated short convolution. Transformers' Lfm2ShortConv."""

    caches = ("conv_state",)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shape of the tokens for the next convolution."""
        return ((past.batch, part.hidden, part.kernel),)

    def __init__(self, part: parts.ShortConvolution) -> None:
        super().__init__()
        self.hidden = part.hidden
        self.in_proj = Linear(part.hidden, 3 * part.hidden, bias=part.bias)
        self.entry_gate, self.gate = Times(), Times()
        self.conv = Convolution(part.hidden, part.kernel, part.bias)
        self.out_proj = Linear(part.hidden, part.hidden, bias=part.bias)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor]:
        """Result, and the last tokens of the convolution."""
        entry, exit_, value = self.in_proj(x).unflatten(2, (3, self.hidden)).unbind(2)
        convolved, last = self.conv.over(self.entry_gate(value, entry), past)
        out: Tensor = self.out_proj(self.gate(convolved, exit_))
        return out, last
