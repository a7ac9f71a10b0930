"""The reference model's Mamba-2: a convolution over the last tokens, and a state per head.

Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060), section 6 and listing 1; transformers' Mamba2Mixer.

Shapes: x is (batch, tokens, channels), heads are (batch, heads, tokens, size), chunks of them (batch, heads · chunks,
tokens of a chunk, size), a state is (batch, heads, head size, state).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import by_head
from tfacct.reference.mixing import Convolution, Mixer, PairDecay, Passed, States, chunked, in_groups
from tfacct.reference.modules import Activation, Add, Linear, Product, Times, Weighted, Work, through
from tfacct.reference.part_module import Past, Shapes


class Step(Work):
    """Step size per head, above 0."""

    def __init__(self, heads: int, least: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(heads))
        self.least = least

    def forward(self, x: Tensor, bounded: bool) -> Tensor:
        step = nn.functional.softplus(x + self.bias)
        return step.clamp(min=self.least) if bounded and self.least else step


class Decay(Weighted):
    """Logarithm of a token's decay per head, below 0."""

    def forward(self, step: Tensor) -> Tensor:
        return -torch.exp(self.weight) * step


class OneToken(Work):
    """State after one token: decayed, plus what it writes."""

    def forward(self, state: Tensor, decay: Tensor, x: Tensor, entry: Tensor) -> Tensor:
        return state * decay.unsqueeze(-1).unsqueeze(-1) + x.unsqueeze(-1) * entry.unsqueeze(-2)


class Skip(Weighted):
    """The head's input, weighted, plus the value read from its state."""

    def forward(self, read: Tensor, x: Tensor) -> Tensor:
        return read + x * self.weight.unsqueeze(-1).unsqueeze(-1)


class GroupNorm(Work):
    """RMSNorm per group of channels."""

    def __init__(self, groups: int, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups * size))
        self.groups, self.size, self.eps = groups, size, eps

    def forward(self, x: Tensor) -> Tensor:
        grouped = torch.unflatten(x, 2, (self.groups, self.size))
        normed = nn.functional.rms_norm(grouped, (self.size,), None, self.eps)
        return normed.flatten(2) * self.weight


class Factors(Work):
    """A token's gate, input, vectors and steps, each times a constant."""

    def __init__(self, part: parts.Mamba2) -> None:
        super().__init__()
        vectors = part.groups * part.state
        assert part.factors is not None
        self.sizes = [part.inner, part.inner, vectors, vectors, part.heads]
        self.factors = part.factors

    def forward(self, x: Tensor) -> Tensor:
        pieces = zip(torch.split(x, self.sizes, dim=-1), self.factors, strict=True)
        return torch.cat([piece * factor for piece, factor in pieces], dim=-1)


class Mamba2(Mixer):
    """Mamba-2: new tokens in chunks; a single token after others without chunks."""

    caches = ("conv_state", "scan_state")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shapes of the tokens for the next convolution, and of the state of every head."""
        return (past.batch, part.channels, part.kernel), (past.batch, part.heads, part.head_dim, part.state)

    def __init__(self, part: parts.Mamba2) -> None:
        super().__init__()
        self.part = part
        self.in_proj = Linear(part.hidden, part.inner + part.channels + part.heads, bias=part.bias)
        self.conv = Convolution(part.channels, part.kernel, part.conv_bias)
        self.conv_act = Activation(part.activation)
        self.step, self.decay = Step(part.heads, part.least_step), Decay(part.heads)
        self.pair_decay, self.chunk_scores, self.weighting = PairDecay(), Product(1), Times()
        self.chunk_values, self.state_write, self.state_decay = Product(1), Product(1), Passed()
        self.state_read, self.read_add = Product(1), Add()
        self.recurrence, self.read_out = OneToken(), Product(1)
        self.skip, self.gate = Skip(part.heads), Activation("silu")
        self.out_norm = GroupNorm(part.groups, part.group * part.head_dim, part.eps) if part.norm else None
        self.out_proj = Linear(part.inner, part.hidden, bias=part.bias if part.out_bias is None else part.out_bias)
        self.in_scale = None if part.factors is None else Factors(part)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, and both states at the end of the step."""
        part, one = self.part, past is not None and x.shape[1] == 1
        made = through(self.in_scale, self.in_proj(x))
        gate, channels, step = torch.split(made, [part.inner, part.channels, part.heads], dim=-1)
        channels, last = self.conv.over(channels, past)
        vectors = part.groups * part.state
        inner, entry, exit_ = torch.split(self.conv_act(channels), [part.inner, vectors, vectors], dim=-1)
        entry, exit_ = (in_groups(each, part.groups, part.state, part.group) for each in (entry, exit_))
        inner = by_head(inner, part.heads, part.head_dim)
        step = self.step(step, not one)
        decay, step = self.decay(step).transpose(1, 2), step.transpose(1, 2).unsqueeze(-1)
        run = self._one if one else self._in_chunks
        out, state = run(inner * step, entry, exit_, decay, None if past is None else past[1])
        return self.out_proj(self._gated(self.skip(out, inner).transpose(1, 2).flatten(2), gate)), last, state

    def _gated(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """The output, gated, and normed before or after the gate if there is a norm."""
        if self.part.norm == "before":
            return self.gate(through(self.out_norm, mixed), gate)
        return through(self.out_norm, self.gate(mixed, gate))

    def _one(
        self, x: Tensor, entry: Tensor, exit_: Tensor, decay: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """One token after others."""
        state = self.recurrence(state, decay.squeeze(2).exp(), x.squeeze(2), entry.squeeze(2))
        return self.read_out(state, exit_.transpose(-1, -2)).transpose(-1, -2), state

    def _in_chunks(
        self, x: Tensor, entry: Tensor, exit_: Tensor, decay: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens padded to whole chunks: first within each chunk, then the states from chunk to chunk."""
        heads, tokens = x.shape[1:3]
        chunks = int(-(-tokens // self.part.chunk))
        every = (x, entry, exit_, decay.unsqueeze(-1))
        x, entry, exit_, steps = (chunked(each, self.part.chunk).flatten(1, 2) for each in every)
        sums = steps.squeeze(-1).cumsum(dim=2)
        scores = self.weighting(self.chunk_scores(exit_, entry.transpose(-1, -2)), self.pair_decay(sums))
        here, ends = self.chunk_values(scores, x), sums[:, :, -1:]
        written = self.state_write(x.transpose(-1, -2), entry * (ends - sums).exp().unsqueeze(-1))
        written, passed = (torch.unflatten(each, 1, (heads, chunks)) for each in (written, ends.exp()))
        states = self._passed(written, passed, state)
        before = self.state_read(exit_, states[:, :, :-1].flatten(1, 2).transpose(-1, -2)) * sums.exp().unsqueeze(-1)
        out = torch.unflatten(self.read_add(here, before), 1, (heads, chunks)).flatten(2, 3)
        return out.narrow(2, 0, tokens), states[:, :, -1].clone()

    def _passed(self, written: Tensor, decay: Tensor, state: Tensor | None) -> Tensor:
        """States before each chunk, and after the last one."""
        batch, heads, chunks = written.shape[:3]
        if state is None:  # its gradient is computed like that of an existing state
            state = written.new_zeros(batch, heads, *written.shape[3:])
            state.requires_grad_(torch.is_grad_enabled())
        found = [state]
        for i in range(chunks):
            found.append(self.state_decay(found[-1], decay[:, :, i, 0, None, None], written[:, :, i]))
        return torch.stack(found, dim=2)
