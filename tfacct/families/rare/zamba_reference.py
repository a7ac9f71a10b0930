"""The reference model's Mamba with heads.

Shapes: x is (batch, tokens, channels), the states of a head's channels are (batch, tokens, heads, channels, state).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.families.rare import zamba
from tfacct.reference.latent import PerHead
from tfacct.reference.mamba import Recurrence, Skip, Softplus
from tfacct.reference.mixing import Convolution, Mixer, States
from tfacct.reference.modules import Activation, Linear, Product
from tfacct.reference.part_module import Past, Shapes


class Steps(PerHead):
    """Matmul per head with its own matrix, and a bias."""

    def __init__(self, heads: int, size: int, rank: int) -> None:
        super().__init__(heads, size, rank, into_latent=False)
        self.bias = nn.Parameter(torch.empty(heads, size))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias.unsqueeze(1)


class HeadedMamba(Mixer):
    """Mamba with heads, as in transformers' ZambaMambaMixer: channels and gates alternate in the input projection."""

    caches = ("conv_state", "scan_state")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shapes of the tokens for the next convolution, and of the state of each channel."""
        return (past.batch, part.inner, part.kernel), (past.batch, part.heads, part.head_dim, part.state)

    def __init__(self, part: zamba.HeadedMamba) -> None:
        super().__init__()
        self.heads, self.size, self.rank, self.state = part.heads, part.head_dim, part.rank, part.state
        self.inner = part.inner
        self.in_proj = Linear(part.hidden, 2 * part.inner, bias=part.bias)
        self.conv = Convolution(part.inner, part.kernel, part.conv_bias)
        self.conv_act = Activation(part.activation)
        self.x_proj = PerHead(part.heads, part.rank + 2 * part.state, part.head_dim, into_latent=False)
        self.dt_proj, self.dt_softplus = Steps(part.heads, part.head_dim, part.rank), Softplus()
        self.recurrence = Recurrence(part.heads, part.head_dim, part.state)
        self.read_out, self.skip = Product(1), Skip(part.inner)
        self.gate = Activation("silu")
        self.out_proj = Linear(part.inner, part.hidden, bias=part.bias)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, and both states at the end of the step."""
        batch, tokens, _ = x.shape
        inner, gate = self.in_proj(x).view(batch, tokens, self.inner, 2).unbind(3)
        inner, seen = self.conv.over(inner, past)
        inner = self.conv_act(inner)
        rows = inner.view(batch * tokens, self.heads, self.size)
        read = self.x_proj(rows.transpose(0, 1)).transpose(0, 1).flatten(1)  # again token by token
        read = torch.unflatten(read, 1, (self.heads, self.rank + 2 * self.state))
        rank, state = self.rank, self.state
        step = self.dt_proj(read.narrow(2, 0, rank).transpose(0, 1)).transpose(0, 1)
        step = torch.unflatten(self.dt_softplus(step), 0, (batch, tokens))
        entry, exit_ = (read.narrow(2, at, state) for at in (rank, rank + state))
        entry = torch.unflatten(entry, 0, (batch, tokens))
        of_heads = inner.view(batch, tokens, self.heads, self.size)
        states = self.recurrence(of_heads, step, entry, None if past is None else past[1])
        exit_ = torch.unflatten(exit_, 0, (batch, tokens)).flatten(1, 2)
        found = self.read_out(states.flatten(1, 2), exit_.unsqueeze(-1)).squeeze(-1)
        mixed = self.skip(found.view(batch, tokens, self.inner), inner)
        out: Tensor = self.out_proj(self.gate(mixed, gate))
        # A copy, because a view would keep all of them alive.
        return out, seen, states.narrow(1, tokens - 1, 1).squeeze(1).clone()
