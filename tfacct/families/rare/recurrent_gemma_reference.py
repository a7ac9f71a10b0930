"""The reference model's RG-LRU: a short convolution, and a linear recurrence per channel.

De et al., "Griffin" (arXiv 2402.19427), equations 1 to 6; transformers' RecurrentGemmaRecurrentBlock.

Shapes: x is (batch, tokens, channels).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.families.rare import recurrent_gemma
from tfacct.reference.mixing import Convolution, Mixer, States, decayed_sums
from tfacct.reference.modules import Activation, BatchedProduct, Linear, Times, Weighted, Work
from tfacct.reference.part_module import Past, Shapes

DECAY = -8.0
"""Factor of a decay's logarithm: c of the paper's equation 6."""


class LastTokens(Convolution):
    """A convolution whose state has one token less than its kernel."""

    def over(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor]:
        batch, tokens, channels = x.shape
        before = x.new_zeros(batch, self.kernel - 1, channels) if past is None else past[0].transpose(1, 2)
        seen = torch.cat((before, x), dim=1)
        out: Tensor = self(seen)
        # A copy, because a view would keep all of them alive.
        return out, seen.narrow(1, tokens, self.kernel - 1).transpose(1, 2).clone()


class BlockGate(BatchedProduct):
    """Matmul of each block of channels with its own matrix."""

    def __init__(self, blocks: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, size, size))
        self.bias = nn.Parameter(torch.empty(blocks, size))

    def counted(self, out: Tensor) -> tuple[int, int, int, int]:
        blocks, size, _ = self.weight.shape
        return out.numel() // (blocks * size), size, size, blocks

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        blocks, size, _ = self.weight.shape
        of_block = x.reshape(batch * tokens, blocks, size).transpose(0, 1)
        out = (of_block @ self.weight).transpose(0, 1) + self.bias
        return out.reshape(batch, tokens, blocks * size)


class Decay(Weighted):
    """Logarithm of the decay per token and channel: negative."""

    def forward(self, gate: Tensor) -> Tensor:
        return DECAY * torch.sigmoid(gate) * nn.functional.softplus(self.weight)


class Input(Work):
    """Input of the state: gated channels times √(1 − decay²); unscaled for the first token."""

    def forward(self, x: Tensor, gate: Tensor, decay: Tensor, first: bool) -> Tensor:
        share = torch.sqrt(1 - torch.exp(2 * decay))
        if first:
            share = torch.cat((torch.ones_like(share[:, :1]), share.narrow(1, 1, x.shape[1] - 1)), dim=1)
        return x * torch.sigmoid(gate) * share


class Recurrence(Work):
    """State of each channel after each token: hₜ = exp(decayₜ) · hₜ₋₁ + inputₜ."""

    def forward(self, added: Tensor, decay: Tensor, before: Tensor | None) -> Tensor:
        return decayed_sums(added, torch.exp(decay), before)


class RGLRU(Mixer):
    """RG-LRU between a convolution and a gate."""

    caches = ("conv_state", "lru_state")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shapes of the tokens for the next convolution, and of the state of each channel."""
        return (past.batch, part.width, part.before), (past.batch, part.width)

    def __init__(self, part: recurrent_gemma.RGLRU) -> None:
        super().__init__()
        width = part.width
        self.y_proj, self.x_proj = (Linear(part.hidden, width, bias=True) for _ in "yx")
        self.act, self.gate = Activation(part.activation), Times()
        self.conv = LastTokens(width, part.before + 1, bias=True)
        self.input_gate, self.decay_gate = (BlockGate(part.blocks, part.block_dim) for _ in "ia")
        self.decay, self.input, self.recurrence = Decay(width), Input(), Recurrence()
        self.out_proj = Linear(width, part.hidden, bias=True)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, and both states at the end of the step."""
        gate = self.act(self.y_proj(x))
        inner, last = self.conv.over(self.x_proj(x), past)
        decay = self.decay(self.decay_gate(inner))
        added = self.input(inner, self.input_gate(inner), decay, past is None)
        sums = self.recurrence(added, decay, None if past is None else past[1])
        out: Tensor = self.out_proj(self.gate(sums, gate))
        return out, last, sums[:, -1].clone()
