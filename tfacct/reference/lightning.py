"""The reference model's lightning attention: a matrix state per head, with constant decay.

Qin et al., "Lightning Attention-2" (arXiv 2401.04658), algorithm 1; transformers' MiniMaxLightningAttention, and Ling
2.5's code (BailingMoeV2_5LinearAttention).

Shapes: x is (batch, tokens, hidden), heads are (batch, heads, tokens, size), chunks of them (batch, heads, chunks,
tokens of a chunk, size), a state is (batch, heads, size, size).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import by_head, slopes
from tfacct.reference.mamba2 import GroupNorm
from tfacct.reference.mixing import Mixer, Passed, States, by_chunk, chunked
from tfacct.reference.modules import (
    Activation,
    Add,
    LetThrough,
    Linear,
    Product,
    RMSNorm,
    Times,
    Work,
    through,
)
from tfacct.reference.part_module import Past, Shapes
from tfacct.reference.rotary import Angles, Rotary, rotated
from tfacct.reference.step import Step

SMALL = 1e-5
"""Constant that keeps the last layer's decay above zero, as in the class."""


class OneToken(Work):
    """State after one token: decayed, plus key times value."""

    def forward(self, state: Tensor, decay: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return state * decay + key.transpose(-1, -2) * value


class LightningAttention(Mixer):
    """Lightning attention: new tokens in chunks; a single token after others without chunks. `number`: layer number, of
    `layers`."""

    caches = ("state",)
    number, layers = 0, 1

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        """Shape of the matrix of every head."""
        return ((past.batch, part.heads, part.head_dim, part.head_dim),)

    def __init__(self, part: parts.LightningAttention) -> None:
        super().__init__()
        self.part = part
        self.q_proj, self.k_proj, self.v_proj = (Linear(part.hidden, part.inner, bias=part.bias) for _ in "qkv")
        self.gate_proj = Linear(part.hidden, part.inner, bias=False)
        acts = (None if part.activation is None else Activation(part.activation) for _ in "qkv")
        self.q_act, self.k_act, self.v_act = acts
        self.q_norm, self.k_norm = (RMSNorm(part.head_dim, part.eps) if part.qk_norm else None for _ in "qk")
        self.rotary_dim = part.head_dim if part.rope_dim is None else part.rope_dim
        self.q_rotary = self.k_rotary = None
        if part.rotary is not None:
            self.takes = ("past", "step")
            self.angles = Angles(part.rotary, self.rotary_dim)
            self.q_rotary, self.k_rotary = Rotary(part.rotary, self.rotary_dim), Rotary(part.rotary, self.rotary_dim)
        self.chunk_scores, self.weighting, self.chunk_values = Product(1), Times(), Product(1)
        self.q_decay, self.k_decay = Times(), Times()
        self.state_read, self.read_add, self.state_write = Product(1), Add(), Product(1)
        self.state_decay, self.recurrence, self.read_out = Passed(), OneToken(), Product(1)
        self.out_norm: nn.Module = RMSNorm(part.inner, part.eps)
        if part.groups is not None:
            # a symbol that it may not divide; no count depends on it
            groups = part.groups if isinstance(part.inner, int) else 1
            self.out_norm = GroupNorm(groups, part.inner // groups, part.eps)
        self.gate, self.out_proj = LetThrough(), Linear(part.inner, part.hidden, bias=part.out_bias)

    def rates(self, like: Tensor) -> Tensor:
        """Logarithm of the decay per token, per head: negative, and slower in deeper layers."""
        heads = self.part.heads
        if self.part.simple:
            rates = slopes(heads).to(like.device, like.dtype).view(1, heads, 1, 1)
            return -rates * (1 - (self.number - 1) / max(self.layers - 1, 1) + SMALL)
        share = 1 - self.number / (self.layers - 1 + SMALL) + SMALL
        powers = torch.arange(1, heads + 1, dtype=like.dtype, device=like.device) * (-8 / heads * math.log(2))
        return -torch.exp(powers).view(1, heads, 1, 1) * share

    def forward(self, x: Tensor, past: States | None, step: Step | None = None) -> tuple[Tensor, Tensor]:
        """Result, and the states at the end of the step."""
        part = self.part
        made = (through(act, project(x)) for project, act in self._made())
        query, key, value = (by_head(each, part.heads, part.head_dim) for each in made)
        query, key = through(self.q_norm, query), through(self.k_norm, key)
        if self.q_rotary is not None and self.k_rotary is not None and step is not None:
            how = step.cos_sin(self.angles), self.rotary_dim
            query, key = rotated(self.q_rotary, query, *how), rotated(self.k_rotary, key, *how)
        query = query * part.head_dim**-0.5 if part.simple else query
        run = self._one if past is not None and x.shape[1] == 1 else self._in_chunks
        out, state = run(query, key, value, None if past is None else past[0])
        normed = self.out_norm(out.transpose(1, 2).flatten(2))
        return self.out_proj(self.gate(normed, self.gate_proj(x))), state

    def _made(self) -> tuple[tuple[nn.Module, nn.Module | None], ...]:
        return (self.q_proj, self.q_act), (self.k_proj, self.k_act), (self.v_proj, self.v_act)

    def _one(self, query: Tensor, key: Tensor, value: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """One token after others."""
        state = self.recurrence(state, self.rates(query).exp(), key, value)
        return self.read_out(query, state), state

    def _in_chunks(self, query: Tensor, key: Tensor, value: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Tokens padded to whole chunks: first within each chunk, then the states from chunk to chunk. Padding adds
        nothing and does not decay, so the last state is that after the last token."""
        batch, heads, tokens, size = query.shape
        chunk = self.part.chunk
        query, key, value = (chunked(each, chunk) for each in (query, key, value))
        chunks = query.shape[2]
        rate, place = self.rates(query), torch.arange(chunk, dtype=query.dtype, device=query.device)
        apart = (place[:, None] - place[None, :]).tril()
        weight = (rate * apart).exp().tril().unsqueeze(2)
        scores = self.weighting(by_chunk(self.chunk_scores, query, key.transpose(-1, -2)), weight)
        here = by_chunk(self.chunk_values, scores, value)
        left = torch.full((chunks,), chunk, dtype=query.dtype, device=query.device)  # tokens of each chunk
        left = torch.cat((left[1:], left.new_full((1,), tokens - (chunks - 1) * chunk)))
        ends = (left[:, None] - 1 - place).clamp(min=0)
        keys = self.k_decay(key, (rate * ends).exp().unsqueeze(-1))
        written = by_chunk(self.state_write, keys.transpose(-1, -2), value)
        passed = (rate.squeeze(-1) * left).exp()
        if state is None:  # its gradient is computed like that of an existing state
            state = query.new_zeros(batch, heads, size, size)
            state.requires_grad_(torch.is_grad_enabled())
        found = [state]
        for i in range(chunks):
            decay = passed[:, :, i].unsqueeze(-1).unsqueeze(-1)
            found.append(self.state_decay(found[-1], decay, written[:, :, i]))
        queries = self.q_decay(query, (rate * (place[:, None] + 1)).exp().unsqueeze(2))
        before = by_chunk(self.state_read, queries, torch.stack(found[:-1], dim=2))
        out = self.read_add(before, here).flatten(2, 3)
        return out.narrow(2, 0, tokens), found[-1].clone()
