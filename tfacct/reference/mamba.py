"""The reference model's Mamba: a convolution over the last tokens, and a recurrence over a state of fixed size.

Gu and Dao, "Mamba" (arXiv 2312.00752), section 3 and algorithm 2; transformers' MambaMixer.

Shapes: x is (batch, tokens, channels), a channel's states are (batch, tokens, channels, state).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import Activation, Linear, Product

States = tuple[Tensor, Tensor]
"""States of Mamba: the tokens that the next convolution sees, (batch, channels, kernel), and the state of every
channel, (batch, channels, state)."""


class Convolution(nn.Module):
    """Depthwise convolution: each channel's last tokens times weights of its own, unfolded into one product per
    channel."""

    def __init__(self, channels: int, kernel: int, bias: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.empty(channels, kernel))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Convolved tokens; `x` begins kernel − 1 tokens before the first of them."""
        batch, there, channels = x.shape
        tokens = there - self.kernel + 1
        place = torch.arange(tokens, device=x.device)[:, None] + torch.arange(self.kernel, device=x.device)
        windows = x.index_select(1, place.reshape(-1)).view(batch, tokens, self.kernel, channels)
        by_channel = windows.permute(3, 0, 1, 2).reshape(channels, batch * tokens, self.kernel)
        sums = by_channel @ self.weight.unsqueeze(-1)
        out = sums.view(channels, batch, tokens).permute(1, 2, 0)
        return out if self.bias is None else out + self.bias


class Softplus(nn.Module):
    """Step size, which is above 0."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(x)


class Recurrence(nn.Module):
    """State after each token: hₜ = exp(stepₜ · A) · hₜ₋₁ + stepₜ · xₜ · Bₜ with A = −exp(weight), for every channel and
    number of its state. Gu and Dao (arXiv 2312.00752), equations 2a and 4, with B simplified to step · B as in their
    code.

    All tokens at once, as a scan whose reach doubles in each round (Hillis and Steele, "Data Parallel Algorithms",
    1986): the decay of the later half of a stretch carries over the state of the earlier one.
    """

    def __init__(self, channels: int, state: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, state))

    def forward(self, x: Tensor, step: Tensor, entry: Tensor, before: Tensor | None) -> Tensor:
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.weight))
        state = (step * x).unsqueeze(-1) * entry.unsqueeze(2)
        if before is not None:
            state = torch.cat((state[:, :1] + decay[:, :1] * before.unsqueeze(1), state[:, 1:]), dim=1)
        reach, tokens = 1, x.shape[1]
        while reach < tokens:
            carried = decay[:, reach:] * state[:, :-reach]
            state = torch.cat((state[:, :reach], state[:, reach:] + carried), dim=1)
            decay = torch.cat((decay[:, :reach], decay[:, reach:] * decay[:, :-reach]), dim=1)
            reach *= 2
        return state


class Skip(nn.Module):
    """Channel's own input, weighted, added to what was read from its state."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))

    def forward(self, read: Tensor, x: Tensor) -> Tensor:
        return read + x * self.weight


class Mamba(nn.Module):
    """Mamba: input product, convolution, recurrence, gate, output product."""

    caches = ("conv_state", "scan_state")

    def __init__(self, part: parts.Mamba) -> None:
        super().__init__()
        self.part = part
        self.in_proj = Linear(part.hidden, 2 * part.inner, bias=part.bias)
        self.conv = Convolution(part.inner, part.kernel, part.conv_bias)
        self.conv_act = Activation(part.activation)
        self.x_proj = Linear(part.inner, part.rank + 2 * part.state, bias=False)
        self.dt_proj = Linear(part.rank, part.inner, bias=True)
        self.dt_softplus = Softplus()
        self.recurrence = Recurrence(part.inner, part.state)
        self.read_out = Product(1)
        self.skip = Skip(part.inner)
        self.gate = Activation(part.activation)
        self.out_proj = Linear(part.inner, part.hidden, bias=part.bias)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, and the two states at the end of the step."""
        part, (batch, tokens, _) = self.part, x.shape
        inner, gate = self.in_proj(x).view(batch, tokens, 2, part.inner).unbind(2)
        before = inner.new_zeros(batch, part.kernel, part.inner) if past is None else past[0].transpose(1, 2)
        seen = torch.cat((before, inner), dim=1)
        inner = self.conv_act(self.conv(seen.narrow(1, 1, part.kernel - 1 + tokens)))
        read = self.x_proj(inner)
        step, entry, exit_ = (read.narrow(2, *at) for at in self._read())
        step = self.dt_softplus(self.dt_proj(step))
        states = self.recurrence(inner, step, entry, None if past is None else past[1])
        mixed = self.skip(self.read_out(states, exit_.unsqueeze(-1)).squeeze(-1), inner)
        out: Tensor = self.out_proj(self.gate(mixed, gate))
        # Copies: a view would hold all of them.
        last = states.narrow(1, tokens - 1, 1).squeeze(1).clone()
        return out, seen.narrow(1, tokens, part.kernel).transpose(1, 2).clone(), last

    def _read(self) -> tuple[tuple[int, int], ...]:
        """Start and length of the vectors that x_proj gives: the step, and those that write and read the state."""
        rank, state = self.part.rank, self.part.state
        return (0, rank), (rank, state), (rank + state, state)
