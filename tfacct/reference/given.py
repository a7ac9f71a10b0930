"""What the reference model is given beside its new tokens: a source, and what it kept before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.architecture import transformer as architecture
from tfacct.reference.compressed import kept_compressed
from tfacct.reference.mixers import module_of


def source_of(shape: architecture.Transformer, batch: int, count: int, device: str, dtype: torch.dtype) -> Tensor:
    """A source of so many positions: tokens, or frames of audio. The backward pass goes on to what frames were made of,
    as it does to the rows of tokens."""
    encoder = shape.encoder
    if encoder is not None and encoder.given:
        return torch.zeros(batch, count, shape.embed.hidden, device=device, dtype=dtype).requires_grad_()
    if encoder is None or encoder.stem is None:
        return torch.zeros(batch, count, dtype=torch.long, device=device)
    return frames(encoder.stem, batch, count, device, dtype)


def frames(stem: parts.Stem, batch: int, count: int, device: str, dtype: torch.dtype) -> Tensor:
    """So many positions of audio."""
    return torch.zeros(batch, stem.bins, stem.STRIDE * count, device=device, dtype=dtype).requires_grad_()


def kept_sizes(part: parts.Part, batch: int, tokens: int, source: int, old: int) -> tuple[tuple[int, ...], ...]:
    """The sizes of what a sublayer keeps of so many tokens, of the `old` ones, and of a source that was read before."""
    match part:
        case parts.Mixer():
            return module_of(part).kept(part, batch)
        case parts.Attention() if part.keeps:
            size = part.head_dim if part.value_dim is None else part.value_dim
            keys: Any = () if part.chosen is None else ((batch, 1, tokens, part.index_dim),)
            if isinstance(part, parts.MergedAttention) and source:
                keys = ((batch, part.kv_heads, source, part.head_dim),) * 2
            own: Any = (batch, part.kv_heads, tokens, part.head_dim), (batch, part.kv_heads, tokens, size), *keys
            if isinstance(part, parts.ConvolvedAttention):
                channels = (part.heads + part.kv_heads) * part.head_dim
                own = ((batch, channels, part.first + part.second), (batch, part.kv_heads * part.half), *own)
            return own  # type: ignore[no-any-return]
        case parts.CompressedAttention():
            return (batch, 1, tokens, part.head_dim), *kept_compressed(part, batch, old)
        case parts.CrossAttention() if source:
            return ((batch, part.kv_heads, source, part.head_dim),) * 2
        case parts.LatentAttention():
            of_heads = (batch, part.heads, tokens, part.query), (batch, part.heads, tokens, part.value_dim)
            latents: tuple[Any, ...] = ((batch, 1, tokens, part.kv_rank),)
            latents += () if part.rope_dim is None else ((batch, 1, tokens, part.rope_dim),)
            latents = () if part.borrowed else latents
            keys = part.index_dim
            index = ((batch, 1, tokens, keys if part.index_pool is None else 2 * keys + 1),) if part.indexes else ()
            return (*(of_heads if part.form == "unpacked" else latents), *index)
    return ()
