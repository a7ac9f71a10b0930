"""The reference model's Mamba: a convolution over the last tokens, and a recurrence over a state of fixed size.

Gu and Dao, "Mamba" (arXiv 2312.00752), section 3 and algorithm 2; transformers' MambaMixer.

Shapes: x is (batch, tokens, channels), a channel's states are (batch, tokens, channels, state).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.mixing import Convolution, Mixer, States, decayed_sums
from tfacct.reference.modules import Activation, Linear, PlainRMSNorm, Product, RMSNorm, Weighted, Work, through
from tfacct.reference.part_module import Past, Shapes


class Softplus(Work):
    """Step size, above 0."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(x)


class Recurrence(Work):
    """State after each token: hₜ = exp(stepₜ · A) · hₜ₋₁ + stepₜ · xₜ · Bₜ with A = −exp(weight), for every channel and
    element of its state. Gu and Dao (arXiv 2312.00752), equations 2a and 4, with B simplified to step · B as in their
    code.
    """

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*sizes))

    def forward(self, x: Tensor, step: Tensor, entry: Tensor, before: Tensor | None) -> Tensor:
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.weight))
        return decayed_sums((step * x).unsqueeze(-1) * entry.unsqueeze(-2), decay, before)


class Skip(Weighted):
    """The channel's input, weighted, plus the value read from its state."""

    def forward(self, read: Tensor, x: Tensor) -> Tensor:
        return read + x * self.weight


class Mamba(Mixer):
    """Mamba: input projection, convolution, recurrence, gate, output projection."""

    caches = ("conv_state", "scan_state")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shapes of the tokens for the next convolution, and of the state of every channel."""
        return (past.batch, part.inner, part.kernel), (past.batch, part.inner, part.state)

    def __init__(self, part: parts.Mamba) -> None:
        super().__init__()
        self.part = part
        self.in_proj = Linear(part.hidden, 2 * part.inner, bias=part.bias)
        self.conv = Convolution(part.inner, part.kernel, part.conv_bias)
        self.conv_act = Activation(part.activation)
        self.x_proj = Linear(part.inner, part.rank + 2 * part.state, bias=False)
        self.dt_norm, self.b_norm, self.c_norm = (self._norm(size) for size in (part.rank, part.state, part.state))
        self.dt_proj = Linear(part.rank, part.inner, bias=True)
        self.dt_softplus = Softplus()
        self.recurrence = Recurrence(part.inner, part.state)
        self.read_out = Product(1)
        self.skip = Skip(part.inner)
        self.gate = Activation("silu")
        self.out_proj = Linear(part.inner, part.hidden, bias=part.bias)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, and both states at the end of the step."""
        part, (batch, tokens, _) = self.part, x.shape
        inner, gate = self.in_proj(x).view(batch, tokens, 2, part.inner).unbind(2)
        inner, seen = self.conv.over(inner, past)
        inner = self.conv_act(inner)
        read = self.x_proj(inner)
        step, entry, exit_ = (read.narrow(2, *at) for at in self._read())
        step, entry, exit_ = through(self.dt_norm, step), through(self.b_norm, entry), through(self.c_norm, exit_)
        step = self.dt_softplus(self.dt_proj(step))
        states = self.recurrence(inner, step, entry, None if past is None else past[1])
        mixed = self.skip(self.read_out(states, exit_.unsqueeze(-1)).squeeze(-1), inner)
        out: Tensor = self.out_proj(self.gate(mixed, gate))
        # Copies, because a view would keep all of them alive.
        last = states.narrow(1, tokens - 1, 1).squeeze(1).clone()
        return out, seen, last

    def _norm(self, size: int) -> nn.Module | None:
        """Norm of vectors of this size, if the part has one."""
        part = self.part
        if part.norms == "none":
            return None
        return RMSNorm(size, part.eps) if part.norms == "scaled" else PlainRMSNorm(size, part.eps)

    def _read(self) -> tuple[tuple[int, int], ...]:
        """Start and length of the vectors in x_proj's output: step sizes, and the vectors that write and read the
        state."""
        rank, state = self.part.rank, self.part.state
        return (0, rank), (rank, state), (rank + state, state)
