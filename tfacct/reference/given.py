"""Inputs of the reference model besides new tokens: a source, and the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.architecture import transformer as architecture


def source_of(shape: architecture.Transformer, batch: int, count: int, device: str, dtype: torch.dtype) -> Tensor:
    """A source of `count` positions: tokens, or audio frames. Frames require a gradient, as token embeddings do."""
    encoder = shape.encoder
    if encoder is not None and encoder.given:
        return torch.zeros(batch, count, shape.embed.hidden, device=device, dtype=dtype).requires_grad_()
    if encoder is not None and isinstance(encoder.embed, parts.Stem):
        return frames(encoder.embed, batch, count, device, dtype)
    return torch.zeros(batch, count, dtype=torch.long, device=device)


def frames(stem: parts.Stem, batch: int, count: int, device: str, dtype: torch.dtype) -> Tensor:
    """Audio frames for this number of positions."""
    return torch.zeros(batch, stem.bins, stem.STRIDE * count, device=device, dtype=dtype).requires_grad_()
