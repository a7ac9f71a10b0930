"""The torch modules of DeepSeek-V4's attention to a window and to compressed keys (transformers' DeepseekV4Attention,
DeepseekV4HCACompressor, DeepseekV4CSACompressor and DeepseekV4Indexer).

Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size), keys a single head of them.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from tfacct.families import deepseek_v4
from tfacct.reference.attention import Sinks, by_head, in_window
from tfacct.reference.compressed import Bias, GroupedLinear, Shares, there_are
from tfacct.reference.modules import Activation, Add, Linear, PlainRMSNorm, Product, RMSNorm, Times, Work
from tfacct.reference.part_module import PartModule, Past, Shapes
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step, forbidding


class Rotation(Work):
    """Rotary embedding of neighboring elements of a head."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        pairs = cos.shape[-1]
        first, second = torch.unflatten(x, -1, (pairs, 2)).unbind(-1)
        return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)


class Some(Work):
    """A part of the attention weights: those of tokens, or of compressed keys."""

    def forward(self, weights: Tensor, first: int, count: int) -> Tensor:
        return weights.narrow(-1, first, count).clone()


class Compressor(nn.Module):
    """Keys computed from `rate` tokens each; with `overlap`, half of a token's elements contribute to the next key."""

    def __init__(self, part: deepseek_v4.CompressedAttention, size: int, angles: Angles | None) -> None:
        super().__init__()
        rate: Any = part.light if part.kind == "light" else part.heavy
        self.rate, self.size, self.overlap, self.angles = rate, size, part.kind == "light", angles
        self.rope_dim = part.rope_dim
        each = 2 * size if self.overlap else size
        self.kv_proj, self.gate_proj = Linear(part.hidden, each, bias=False), Linear(part.hidden, each, bias=False)
        self.position_bias, self.softmax, self.weighting = Bias(rate, each), Shares(), Times()
        self.kv_norm, self.rotary = RMSNorm(size, part.eps), Rotation()

    def forward(self, x: Tensor, past: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """Keys up to the end of the step, (batch, 1, keys, size), and waiting tokens with their weights. With overlap,
        also the last contribution to the next key with its weights."""
        kv, gate, before = self.kv_proj(x), self.gate_proj(x), 0
        if past is not None:
            before = past[0].shape[2]
            kv, gate = torch.cat((past[1].squeeze(1), kv), dim=1), torch.cat((past[2].squeeze(1), gate), dim=1)
        count, rate = kv.shape[1] // self.rate, self.rate
        used = count * rate
        waiting = [each.narrow(1, used, each.shape[1] - used).clone().unsqueeze(1) for each in (kv, gate)]
        kv, gate = (torch.unflatten(each.narrow(1, 0, used), 1, (count, rate)) for each in (kv, gate))
        some, shares = there_are(count), list[Tensor]()
        gate = self.position_bias(gate) if some else gate
        if self.overlap:
            kv, gate, *shares = self._overlapping(kv, gate, count, None if past is None else past[3:])
        if some:
            keys = self.kv_norm(self.weighting(kv, self.softmax(gate)).sum(dim=2)).unsqueeze(1)
            keys = self._rotated(keys, count, before)
        else:
            keys = kv.sum(dim=2).unsqueeze(1)
        if past is not None:
            keys = torch.cat((past[0], keys), dim=2)
        return keys, *waiting, *shares

    def _overlapping(
        self, kv: Tensor, gate: Tensor, count: int, past: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Elements and weights of both contributions to each key, and those of the last tokens to the next key. The
        first key has one contribution: the other has weight 0."""
        found, cached = [], []
        for which, (each, nothing) in enumerate(((kv, 0.0), (gate, float("-inf")))):
            there = past is not None and there_are(past[which].shape[2])
            shape = (each.shape[0], 1, self.rate, self.size)
            first = past[which] if past is not None and there else each.new_full(shape, nothing)
            next_, current = torch.split(each, [self.size, self.size], dim=-1)
            of_before = torch.cat((first, next_), dim=1)
            found.append(torch.cat((of_before.narrow(1, 0, count), current), dim=2))
            last = of_before.narrow(1, count, 1).clone()
            cached.append(last if there or there_are(count) else last.narrow(2, 0, 0).clone())
        return found[0], found[1], cached[0], cached[1]

    def _rotated(self, keys: Tensor, count: int, before: int) -> Tensor:
        """Keys with the rotary embedding of the first of their tokens."""
        places = (torch.arange(count, device=keys.device) + before) * self.rate
        cos_sin = None if self.angles is None else self.angles.cos_sin(places)
        return rotated(self.rotary, keys, self.size, self.rope_dim, cos_sin)


def rotated(
    rotary: nn.Module, heads: Tensor, size: int, some: int, cos_sin: tuple[Tensor, Tensor] | None, back: bool = False
) -> Tensor:
    """Heads with a rotary embedding of their last elements, or, if `back`, with it undone."""
    if cos_sin is None:
        return heads
    pairs = some // 2
    cos, sin = cos_sin[0].narrow(-1, 0, pairs), cos_sin[1].narrow(-1, pairs, pairs)
    cos, sin = (each.to(heads.device, heads.dtype) for each in (cos, -sin if back else sin))
    rest, last = torch.split(heads, [size - some, some], dim=-1)
    return torch.cat((rest, rotary(last, cos, sin)), dim=-1)


class Indexer(Compressor):
    """Separate heads score separate compressed keys; their weighted sum selects the keys."""

    def __init__(self, part: deepseek_v4.CompressedAttention, angles: Angles | None) -> None:
        size: Any = part.index_dim
        super().__init__(part, size, angles)
        heads: Any = part.index_heads
        self.heads, self.top = heads, part.index_top
        # In a proof, a head may be smaller than its rotary dimensions, unlike in any config; no matmul depends on it.
        self.rotates = isinstance(size, int) and isinstance(part.rope_dim, int) and size >= part.rope_dim
        self.q_proj, self.q_rotary = Linear(part.q_rank, heads * size, bias=False), Rotation()
        self.scores, self.act, self.sum = Product(heads), Activation("relu"), Times()
        self.weights_proj = Linear(part.hidden, heads, bias=False)

    def chosen(self, x: Tensor, read: Tensor, keys: Tensor, step: Step, seen: Tensor | None) -> Tensor:
        """Mask of shape (batch, 1, new, keys): −∞ for keys that are not selected, or not complete by `seen`. Zeros
        computed from the scores are added, because a trace would drop unused scores."""
        q = by_head(self.q_proj(read), self.heads, self.size)
        if self.angles is not None and self.rotates:
            q = rotated(self.q_rotary, q, self.size, self.rope_dim, step.cos_sin(self.angles))
        each = self.act(self.scores(q, keys.transpose(2, 3)) * self.size**-0.5)
        weights = (self.weights_proj(x) * self.heads**-0.5).transpose(1, 2).unsqueeze(-1)
        scores = self.sum(each, weights).sum(dim=1, keepdim=True)
        unread: Tensor = scores * 0.0
        if seen is None or not isinstance(self.top, int):
            return unread
        masked = scores.detach() + seen
        best = masked.topk(min(self.top, scores.shape[-1]), dim=-1).indices
        return torch.full_like(scores, float("-inf")).scatter(-1, best, 0.0) + seen + unread

    def _rotated(self, keys: Tensor, count: int, before: int) -> Tensor:
        return super()._rotated(keys, count, before) if self.rotates else keys


class CompressedAttention(PartModule):
    """Attention of new tokens to the tokens of a window and to compressed keys, which are also values."""

    takes = ("step", "past")

    @classmethod
    def built(cls, part: Any, angles: Angles | None, *, fused: bool, keep_all: bool) -> Self:  # noqa: ARG003
        return cls(part, angles, keep_all=keep_all)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        rate: Any = part.light if part.kind == "light" else part.heavy
        found: list[tuple[int, ...]] = [(past.batch, 1, past.tokens, part.head_dim)]
        compressed = (
            () if part.kind is None else (part.head_dim, *((part.index_dim,) if part.light is not None else ()))
        )
        for size in compressed:
            entries, each = past.old // rate, size if part.kind == "heavy" else 2 * size
            found += [(past.batch, 1, entries, size), *[(past.batch, 1, past.old - entries * rate, each)] * 2]
            if part.kind == "light":
                overlap = 0 if isinstance(past.old, int) and past.old < rate else rate
                found += [(past.batch, 1, overlap, size)] * 2
        return tuple(found)

    def __init__(self, part: deepseek_v4.CompressedAttention, angles: Angles | None, *, keep_all: bool) -> None:
        super().__init__()
        self.part, self.angles, self.keep_all = part, angles, keep_all
        size, heads = part.head_dim, part.heads
        self.q_a_proj, self.q_a_norm = Linear(part.hidden, part.q_rank, bias=False), RMSNorm(part.q_rank, part.eps)
        self.q_b_proj, self.q_b_norm = Linear(part.q_rank, heads * size, bias=False), PlainRMSNorm(size, part.eps)
        self.kv_proj, self.kv_norm = Linear(part.hidden, size, bias=False), RMSNorm(size, part.eps)
        self.q_rotary, self.kv_rotary, self.out_rotary = Rotation(), Rotation(), Rotation()
        self.compressor = None if part.kind is None else Compressor(part, size, angles)
        if self.compressor is not None and part.light is not None:
            self.compressor.indexer = Indexer(part, angles)
        self.scores, self.values = Product(heads), Product(heads)
        self.sinks, self.softmax = Sinks(heads), Some()
        if part.kind is not None:
            self.compressed_scores, self.compressed_values = Product(heads), Product(heads)
            self.compressed_softmax, self.compressed_add = Some(), Add()
        self.o_a_proj = GroupedLinear(part.groups, part.group_heads * size, part.out_rank)
        self.o_b_proj = Linear(part.groups * part.out_rank, part.hidden, bias=False)
        states = ["cache", "waiting_cache", "waiting_gates"]
        states += [] if part.light is None else ["overlap_cache", "overlap_gates"]
        makers = [] if part.kind is None else ["compressor"]
        makers += [] if part.light is None else ["compressor.indexer"]
        self.each = len(states)
        self.caches = ("kv_cache", *(f"{maker}.{name}" for maker in makers for name in states))

    def forward(self, x: Tensor, step: Step, past: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        part, size = self.part, self.part.head_dim
        cos_sin = None if self.angles is None else step.cos_sin(self.angles)
        read = self.q_a_norm(self.q_a_proj(x))
        q = self.q_b_norm(by_head(self.q_b_proj(read), part.heads, size))
        q = rotated(self.q_rotary, q, size, part.rope_dim, cos_sin)
        k = rotated(self.kv_rotary, self.kv_norm(self.kv_proj(x)).unsqueeze(1), size, part.rope_dim, cos_sin)
        old = 0
        if past is not None:
            old = past[0].shape[2]
            k = torch.cat((past[0], k), dim=2)
        scores = [self.scores(q, k.transpose(2, 3)) * size**-0.5 + step.mask(old, part.window)]
        keys, cached = None, tuple[Tensor, ...]()
        if self.compressor is not None:
            keys, masked, cached = self._compressed(self.compressor, x, read, step, past)
            compressed = self.compressed_scores(q, keys.transpose(2, 3)) * size**-0.5
            scores.append(compressed if masked is None else compressed + masked)
        scores.append(self.sinks(q.shape[0], q.shape[2]))
        weights = torch.softmax(torch.cat(scores, dim=-1), dim=-1)
        mixed = self.values(self.softmax(weights, 0, k.shape[2]), k)
        if keys is not None:
            some = self.compressed_softmax(weights, k.shape[2], keys.shape[2])
            mixed = self.compressed_add(mixed, self.compressed_values(some, keys))
        mixed = rotated(self.out_rotary, mixed, size, part.rope_dim, cos_sin, back=True).transpose(1, 2)
        groups = torch.unflatten(mixed, 2, (part.groups, part.group_heads)).flatten(3)
        return self.o_b_proj(self.o_a_proj(groups)), in_window(k, part.window, self.keep_all), *cached

    def _compressed(
        self, maker: Compressor, x: Tensor, read: Tensor, step: Step, past: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """Compressed keys, the mask of their scores, and the states."""
        cached = maker(x, None if past is None else past[1 : 1 + self.each])
        seen = self._seen(cached[0], step)
        if self.part.light is None:
            return cached[0], seen, cached
        index = maker.indexer
        assert isinstance(index, Indexer)
        states = index(x, None if past is None else past[1 + self.each :])
        return cached[0], index.chosen(x, read, states[0], step, seen), (*cached, *states)

    def _seen(self, keys: Tensor, step: Step) -> Tensor | None:
        """Mask of shape (new, keys): −∞ for keys that are not complete before a token; None without values."""
        if keys.is_meta or not isinstance(keys.shape[2], int):
            return None
        assert self.compressor is not None
        full = (step.positions.to(keys.device) + 1) // self.compressor.rate
        later = torch.arange(keys.shape[2], device=keys.device)[None, :] >= full[:, None]
        return forbidding(later, keys)
