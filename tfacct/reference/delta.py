"""The reference model's gated DeltaNet: a convolution over the last tokens, and a matrix state per head.

Yang et al., "Gated Delta Networks" (arXiv 2412.06464), equation 10; in chunks as in "Parallelizing Linear Transformers
with the Delta Rule" (2406.06484), section 3. Transformers' Qwen3NextGatedDeltaNet and KimiLinearDeltaAttention.

Shapes: x is (batch, tokens, hidden), heads are (batch, heads, tokens, size), chunks of them (batch, heads, chunks,
tokens of a chunk, size), a state is (batch, heads, key size, value size).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import by_head
from tfacct.reference.mixing import Convolution, Mixer, PairDecay, Passed, States, by_chunk, chunked, in_groups
from tfacct.reference.modules import Activation, Add, Linear, Minus, Product, RMSNorm, Scale, Work
from tfacct.reference.part_module import Past, Shapes

UNIT_EPS = 1e-6
"""Epsilon added to the square of a key's length, as in the class."""


class Unit(Scale):
    """Heads of length 1, times a factor."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + UNIT_EPS) * self.factor)


class Rate(Scale):
    """Share of the state at a key that the token replaces."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.sigmoid(x))


class Decay(Work):
    """Logarithm of a token's decay, per head or per key channel, below 0."""

    def __init__(self, heads: int, *channels: int, floor: float | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads))
        self.bias = nn.Parameter(torch.empty(heads, *channels))
        self.floor = floor

    def forward(self, x: Tensor) -> Tensor:
        rate = torch.exp(self.weight)
        rate = rate if self.bias.dim() == 1 else rate.unsqueeze(1)
        if self.floor is not None:
            return self.floor * torch.sigmoid(rate * (x + self.bias))
        return -rate * nn.functional.softplus(x + self.bias)


class Pairs(Work):
    """Products of the elements of each two tokens and their decay: (channels, tokens, tokens)."""

    def forward(self, left: Tensor, right: Tensor, decay: Tensor) -> Tensor:
        return left.transpose(-1, -2).unsqueeze(-1) * right.transpose(-1, -2).unsqueeze(-2) * decay


def _solved(system: Tensor, right: Tensor, *, upper: bool = False) -> Tensor:
    # torch's shape rule for a solution does not support symbols: the shape is that of the right side
    if any(isinstance(size, torch.SymInt) for size in right.shape):
        return right.clone()
    return torch.linalg.solve_triangular(system, right, upper=upper, unitriangular=True)


class _Solved(torch.autograd.Function):
    """Solution of a triangular system with ones on its diagonal; its gradient is also not counted as a matmul."""

    @staticmethod
    def forward(ctx: Any, system: Tensor, right: Tensor) -> Tensor:
        found = _solved(system, right)
        ctx.save_for_backward(system, found)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        system, found = ctx.saved_tensors
        gradient_of_right = _solved(system.transpose(-1, -2), gradient, upper=True)
        return -(gradient_of_right.unsqueeze(-2) * found.unsqueeze(-3)).sum(dim=-1).tril(-1), gradient_of_right


class Solved(Work):
    """Solution of (1 + strictly lower triangle of `system`) · x = right."""

    def forward(self, system: Tensor, right: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return _solved(system, right)
        return _Solved.apply(system, right)  # type: ignore[no-untyped-call]


class Inverse(Solved):
    """Inverse of such a system."""

    def forward(self, system: Tensor) -> Tensor:  # type: ignore[override]
        ones = torch.ones(system.shape[-1], dtype=system.dtype, device=system.device).diag()
        return Solved.forward(self, system, ones.expand_as(system))


class OneToken(Work):
    """State after one token: decayed, and corrected at the token's key."""

    def forward(self, state: Tensor, k: Tensor, v: Tensor, decay: Tensor, rate: Tensor) -> Tensor:
        state = state * decay.exp().unsqueeze(-1)
        old_values = (state * k.unsqueeze(-1)).sum(dim=-2)
        return state + k.unsqueeze(-1) * ((v - old_values) * rate).unsqueeze(-2)


class OneRead(Work):
    """What one query reads from the state."""

    def forward(self, state: Tensor, q: Tensor) -> Tensor:
        return (state * q.unsqueeze(-1)).sum(dim=-2)


class OutGate(Work):
    """Output times the token's gate."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.sigmoid = kind == "sigmoid"

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return x * (torch.sigmoid(gate) if self.sigmoid else nn.functional.silu(gate))


class DeltaNet(Mixer):
    """Gated DeltaNet: new tokens in chunks; a single token after others without chunks."""

    caches = ("conv_state", "delta_state")

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shapes of the tokens for the next convolution, and of the matrix of every head."""
        return (past.batch, part.channels, part.kernel), (past.batch, part.heads, part.key_dim, part.value_dim)

    def __init__(self, part: parts.DeltaNet) -> None:
        super().__init__()
        self.part = part
        hidden, heads = part.hidden, part.heads
        keys, values = part.key_heads * part.key_dim, heads * part.value_dim
        self.q_proj, self.k_proj = Linear(hidden, keys, bias=False), Linear(hidden, keys, bias=False)
        self.v_proj = Linear(hidden, values, bias=False)
        self.rate_proj = Linear(hidden, heads, bias=False)
        decays = heads * part.key_dim if part.by_channel else heads
        if part.rank is None:
            self.gate_proj, self.decay_proj = Linear(hidden, values, bias=False), Linear(hidden, decays, bias=False)
        else:
            self.gate_a_proj, self.gate_b_proj = _narrow(hidden, part.rank, values)
            self.decay_a_proj, self.decay_b_proj = _narrow(hidden, part.rank, decays)
        if not part.by_channel:
            self.decay = Decay(heads)
            self.key_pairs, self.chunk_scores = Product(1), Product(1)
            self.new_values, self.new_keys = Solved(), Solved()
        else:
            self.decay = Decay(heads, part.key_dim, floor=part.floor)
            self.key_pairs, self.chunk_scores = Pairs(), Pairs()  # type: ignore[assignment]
            self.inverse, self.new_values, self.new_keys = Inverse(), Product(1), Product(1)  # type: ignore[assignment]
        self.conv, self.conv_act = Convolution(part.channels, part.kernel, False), Activation(part.activation)
        self.q_norm, self.k_norm = Unit(part.key_dim**-0.5), Unit(1.0)
        self.rate, self.pair_decay = Rate(2.0 if part.doubled else 1.0), PairDecay()
        self.old_values, self.correction, self.state_read = Product(1), Minus(), Product(1)
        self.chunk_values, self.read_add, self.state_write = Product(1), Add(), Product(1)
        self.state_decay, self.recurrence, self.step_read = Passed(), OneToken(), OneRead()
        self.out_norm, self.gate = RMSNorm(part.value_dim, part.eps), OutGate(part.gate)
        self.out_proj = Linear(values, hidden, bias=False)

    def forward(self, x: Tensor, past: States | None) -> tuple[Tensor, Tensor, Tensor]:
        """Result, and both states at the end of the step."""
        part = self.part
        channels, last = self.conv.over(torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1), past)
        keys = part.key_heads * part.key_dim
        q, k, v = torch.split(self.conv_act(channels), [keys, keys, part.heads * part.value_dim], dim=-1)
        each = part.key_heads, part.key_dim, part.group
        q, k = self.q_norm(in_groups(q, *each)), self.k_norm(in_groups(k, *each))
        v = by_head(v, part.heads, part.value_dim)
        rate = self.rate(self.rate_proj(x)).transpose(1, 2).unsqueeze(-1)
        decay = self.decay(self._decays(x)).transpose(1, 2)
        if past is not None and x.shape[1] == 1:
            out, state = self._one(q, k, v, decay, rate, past[1])
        else:
            out, state = self._in_chunks(q, k, v, decay, rate, None if past is None else past[1])
        gate = self.gate_proj(x) if part.rank is None else self.gate_b_proj(self.gate_a_proj(x))
        out = self.gate(self.out_norm(out.transpose(1, 2)), torch.unflatten(gate, 2, (part.heads, part.value_dim)))
        return self.out_proj(out.flatten(2)), last, state

    def _decays(self, x: Tensor) -> Tensor:
        """Input of the decay: one value per head, or per key channel."""
        part = self.part
        made: Tensor = self.decay_proj(x) if part.rank is None else self.decay_b_proj(self.decay_a_proj(x))
        return torch.unflatten(made, 2, (part.heads, part.key_dim)) if part.by_channel else made

    def _one(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        """One token after others."""
        q, k, v, decay, rate, state = given
        decay = decay.squeeze(2)
        decay = decay if self.part.by_channel else decay.unsqueeze(-1)
        state = self.recurrence(state, k.squeeze(2), v.squeeze(2), decay, rate.squeeze(2))
        return self.step_read(state, q.squeeze(2)).unsqueeze(2), state

    def _in_chunks(
        self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, rate: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens padded to whole chunks: first within each chunk, then from chunk to chunk."""
        tokens, by_channel = q.shape[2], self.part.by_channel
        chunk = self.part.chunk
        q, k, kb, vb = (chunked(x, chunk) for x in (q, k, k * rate, v * rate))
        sums = chunked(decay if by_channel else decay.unsqueeze(-1), chunk).cumsum(dim=3)
        between = self.pair_decay(sums.transpose(-1, -2) if by_channel else sums.squeeze(-1))
        if by_channel:
            system, scores = self.key_pairs(kb, k, between).sum(-3), self.chunk_scores(q, k, between).sum(-3)
            inverse = self.inverse(system)
            new, seen = by_chunk(self.new_values, inverse, vb), by_chunk(self.new_keys, inverse, kb * sums.exp())
        else:
            system = by_chunk(self.key_pairs, kb, k.transpose(-1, -2)) * between
            scores = by_chunk(self.chunk_scores, q, k.transpose(-1, -2)) * between
            new, seen = self.new_values(system, vb), self.new_keys(system, kb * sums.exp())
        q, ends = q * sums.exp(), sums[:, :, :, -1:]
        k, ends = k * (ends - sums).exp(), ends.exp().transpose(-1, -2)
        if state is None:  # its gradient is computed like that of an existing state
            state = q.new_zeros(q.shape[0], q.shape[1], self.part.key_dim, self.part.value_dim)
            state.requires_grad_(torch.is_grad_enabled())
        out = []
        for i in range(q.shape[2]):
            fresh = self.correction(new[:, :, i], self.old_values(seen[:, :, i], state))
            out.append(self.read_add(self.state_read(q[:, :, i], state), self.chunk_values(scores[:, :, i], fresh)))
            state = self.state_decay(state, ends[:, :, i], self.state_write(k[:, :, i].transpose(-1, -2), fresh))
        return torch.cat(out, dim=2).narrow(2, 0, tokens), state


def _narrow(hidden: int, rank: int, wide: int) -> tuple[Linear, Linear]:
    """A low-rank projection: two matmuls."""
    return Linear(hidden, rank, bias=False), Linear(rank, wide, bias=False)
