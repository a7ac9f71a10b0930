"""The reference model's latent attention. Latents are (batch, 1, tokens, size)."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import Cache, OutputGate, Sinks, Softmax, Temperature, appended, by_head, in_window
from tfacct.reference.indexer import Grown, Indexer
from tfacct.reference.modules import Linear, Product, RMSNorm, Scale, through
from tfacct.reference.part_module import PartModule, Past, Shapes, family_module
from tfacct.reference.rotary import Angles, Rotary
from tfacct.reference.step import Step


class PerHead(nn.Module):
    """A matmul per head with its own matrix, between the head size and the latent size.

    The weight is that of the linear layer that projects a latent to the heads.
    """

    def __init__(self, heads: int, size: int, latent: int, *, into_latent: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads * size, latent))
        self.heads, self.size, self.latent, self.into_latent = heads, size, latent, into_latent

    def forward(self, x: Tensor) -> Tensor:
        matrices = self.weight.view(self.heads, self.size, self.latent)
        return x @ (matrices if self.into_latent else matrices.transpose(1, 2))


class LatentAttention(PartModule):
    """Causal self-attention over keys and values from a latent, in one of three modes.

    "DeepSeek-V2" (arXiv 2405.04434), section 2.1; expanded as in transformers' DeepseekV3Attention.
    """

    takes = ("step", "past")

    @classmethod
    def built(cls, part: Any, angles: Angles | None, *, fused: bool, keep_all: bool) -> Self:  # noqa: ARG003
        return cls(part, angles, keep_all=keep_all)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:
        sizes = {
            "k_cache": (part.heads, past.tokens, part.query),
            "v_cache": (part.heads, past.tokens, part.value_dim),
            "latent_cache": (1, past.tokens, part.kv_rank),
            "rotary_cache": (1, past.tokens, part.rope_dim),
            "index_cache": (1, past.tokens, part.indexer and part.indexer.cached_dim),
        }
        return tuple((past.batch, *sizes[name]) for name in _cache_names(part))

    def __init__(self, part: parts.LatentAttention, angles: Angles | None, *, keep_all: bool = False) -> None:
        super().__init__()
        self.part, self.angles, self.keep_all = part, angles, keep_all
        self.caches = _cache_names(part)
        self.indexer: nn.Module | None = None
        if part.indexer is not None and part.indexes:
            self.indexer = (family_module(part.indexer) or Indexer)(part, angles)
        self.scale = part.query**-0.5 if part.scale is None else part.scale
        if part.q_rank is None:
            self.q_proj = Linear(part.hidden, part.heads * part.query, bias=False)
        else:
            self.q_a_proj = Linear(part.hidden, part.q_rank, bias=part.bias)
            self.q_a_norm = RMSNorm(part.q_rank, part.eps)
            self.q_b_proj = Linear(part.q_rank * (1 + part.paired), part.heads * part.query, bias=False)
        self.q_scale: nn.Module | None = None
        if part.temperature is not None:
            self.q_scale = Grown(part.heads) if part.temperature == "learned" else Temperature(part.temperature)
        rotated = 0 if part.rope_dim is None else part.rope_dim
        if not part.borrowed:
            self.kv_a_proj = Linear(part.hidden, part.kv_rank + rotated, bias=part.bias)
            self.kv_a_norm = RMSNorm(part.kv_rank, part.eps)
        self.q_stretch = self.kv_stretch = None
        if part.stretch and part.q_rank is not None:
            self.q_stretch = Scale(part.hidden**0.5 / part.q_rank**0.5)
            self.kv_stretch = Scale(part.hidden**0.5 / part.kv_rank**0.5)
        self.rotated = rotated
        self.rope_norm = RMSNorm(rotated, part.eps) if part.rope_norm else None
        self.q_rotary = None if part.rotary is None else Rotary(part.rotary, rotated)
        self.k_rotary = None if part.rotary is None or part.borrowed else Rotary(part.rotary, rotated)
        absorbed = part.mla_mode == "absorbed"
        if absorbed:
            self.k_b_proj: nn.Module = PerHead(part.heads, part.nope_dim, part.kv_rank, into_latent=True)
            self.v_b_proj: nn.Module = PerHead(part.heads, part.value_dim, part.kv_rank, into_latent=False)
        else:
            self.k_b_proj = Linear(part.kv_rank, part.heads * part.nope_dim, bias=False)
            self.v_b_proj = Linear(part.kv_rank, part.heads * part.value_dim, bias=False)
        sharing = part.heads if absorbed else 1  # one latent serves as keys and values of all heads
        self.scores, self.values = Product(sharing), Product(sharing)
        self.softmax = Softmax(self.scale)
        self.sinks = Sinks(part.heads) if part.sinks else None
        self.gate_proj = self.gate = None
        if part.gate is not None:
            gates = part.heads * part.value_dim if part.gate.of == "elements" else part.heads
            gating = 2 * part.q_rank if part.paired and part.q_rank is not None else part.hidden
            self.gate_proj, self.gate = Linear(gating, gates, bias=False), OutputGate(part.gate, part.value_dim)
        self.o_proj = Linear(part.heads * part.value_dim, part.hidden, bias=part.bias)

    def forward(self, x: Tensor, step: Step, past: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        part = self.part
        read, normed = self._queried(x)
        queries = (self.q_proj if part.q_rank is None else self.q_b_proj)(read)
        heads = self._split(queries, part.query)
        if self.q_scale is not None:
            heads = self.q_scale(heads, step.positions)
        heads = through(self.q_stretch, heads) if part.stretch == "queries" else heads
        plain, rope = torch.split(heads, [part.nope_dim, self.rotated], dim=-1)
        index: tuple[Tensor, ...] = ()
        borrows = part.borrowed and part.mla_mode != "unpacked"
        single_state = part.mla_mode != "unpacked" and part.rope_dim is None  # no part of a key is rotated
        if self.indexer is not None:
            index = (self.indexer(x, normed, step, None if past is None else past[-1]),)
        if past is not None and not borrows:
            past = (past[0], past[0].narrow(-1, 0, 0)) if single_state else (past[0], past[1])
        if self.angles is not None and self.q_rotary is not None:
            rope = self.q_rotary(rope, *step.cos_sin(self.angles))
        latent, shared = self._latents(x, step)
        run = {"expanded": self._expanded, "absorbed": self._absorbed, "unpacked": self._unpacked}[part.mla_mode]
        mixed, cached = run(plain, rope, latent, shared, step, past)
        mixed = mixed.transpose(1, 2).flatten(2)
        if self.gate is not None and self.gate_proj is not None:
            mixed = self.gate(mixed, self.gate_proj(read if part.paired else x))
        cached = tuple(in_window(each, part.window, self.keep_all) for each in cached[: 1 if single_state else 2])
        return self.o_proj(mixed), *(() if borrows else cached), *index

    def _latents(self, x: Tensor, step: Step) -> Cache:
        """Latents of the new tokens, and the part shared by all heads; in a layer that reuses latents, those of the
        source layer, for all tokens if they are cached."""
        part = self.part
        if part.borrowed:
            return step.latents[part.rotary is None]
        latent, shared = torch.split(self.kv_a_proj(x).unsqueeze(1), [part.kv_rank, self.rotated], dim=-1)
        latent = through(self.kv_stretch, self.kv_a_norm(latent))
        shared = through(self.rope_norm, shared)
        if self.angles is not None and self.k_rotary is not None:
            shared = self.k_rotary(shared, *step.cos_sin(self.angles))
        else:
            shared = shared.clone()  # otherwise the cache would keep the whole matmul output alive
        if part.mla_mode == "unpacked":
            step.latents[part.rotary is None] = (latent, shared)
        return latent, shared

    def _all(self, past: Cache | None, latent: Tensor, shared: Tensor, step: Step) -> Cache:
        """The same for all tokens, which later layers may reuse."""
        if self.part.borrowed:
            return latent, shared
        latent, shared = appended(past, latent, shared)
        step.latents[self.part.rotary is None] = (latent, shared)
        return latent, shared

    def _expanded(
        self, plain: Tensor, rope: Tensor, latent: Tensor, shared: Tensor, step: Step, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        latent, shared = self._all(past, latent, shared, step)
        k, v = self._keys_and_values(latent, shared)
        return self._mixed(torch.cat((plain, rope), dim=-1), k, v, step, past), (latent, shared)

    def _absorbed(
        self, plain: Tensor, rope: Tensor, latent: Tensor, shared: Tensor, step: Step, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        latent, shared = self._all(past, latent, shared, step)
        q = torch.cat((self.k_b_proj(plain), rope), dim=-1)
        mixed = self._mixed(q, torch.cat((latent, shared), dim=-1), latent, step, past)
        return self.v_b_proj(mixed), (latent, shared)

    def _unpacked(
        self, plain: Tensor, rope: Tensor, latent: Tensor, shared: Tensor, step: Step, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        k, v = appended(past, *self._keys_and_values(latent, shared))
        return self._mixed(torch.cat((plain, rope), dim=-1), k, v, step, past), (k, v)

    def _queried(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Input of the queries, and input of an indexer's queries."""
        if self.part.q_rank is None:
            return x, x
        latent = self.q_a_proj(x)
        normed = self.q_a_norm(latent)
        normed = through(self.q_stretch, normed) if self.part.stretch == "latents" else normed
        return torch.cat((normed, latent), dim=-1) if self.part.paired else normed, normed

    def _keys_and_values(self, latent: Tensor, shared: Tensor) -> Cache:
        tokens = latent.squeeze(1)
        plain = self._split(self.k_b_proj(tokens), self.part.nope_dim)
        values = self._split(self.v_b_proj(tokens), self.part.value_dim)
        return torch.cat((plain, shared.expand(-1, self.part.heads, -1, -1)), dim=-1), values

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, step: Step, past: Cache | None) -> Tensor:
        mask = step.mask(past[0].shape[2] if past else 0, self.part.window)  # computed by the source layer
        if self.part.indexer is not None and step.chosen is not None:
            mask = mask + step.chosen
        sinks = None if self.sinks is None else self.sinks(q.shape[0], q.shape[2])
        return self.values(self.softmax(self.scores(q, k.transpose(2, 3)), mask, sinks), v)

    def _split(self, x: Tensor, size: int) -> Tensor:
        return by_head(x, self.part.heads, size)


def _cache_names(part: parts.LatentAttention) -> tuple[str, ...]:
    """Names of the cached tensors."""
    rotated = () if part.rope_dim is None else ("rotary_cache",)
    latents = () if part.borrowed else ("latent_cache", *rotated)
    names = ("k_cache", "v_cache") if part.mla_mode == "unpacked" else latents
    return (*names, "index_cache") if part.indexes else names
