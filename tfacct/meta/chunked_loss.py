"""A chunked loss for a transformers class, in plain torch: head and cross-entropy of some tokens at a time."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfacct.meta.autocast import autocast, checkpoint_options

IGNORED = -100
"""The label of tokens without a target, such as the last of a sequence."""


def body_of(model: Any) -> Any:
    """The model without its head; a class may have another base model."""
    return getattr(model, "model", model) if model.base_model is model else model.base_model


def loss_in_chunks(model: nn.Module, chunks: int, cast: torch.dtype | None = None) -> Any:
    """The model with head and loss run chunk by chunk, and again in the backward pass. `cast`: the dtype of autocast,
    if any."""
    model.forward = partial(_forward, model, chunks, cast)
    return model


def _forward(model: Any, chunks: int, cast: torch.dtype | None, **named: Any) -> Any:
    with autocast(cast):
        return _in_chunks(model, chunks, partial(checkpoint, use_reentrant=False, **checkpoint_options(cast)), **named)


def _in_chunks(model: Any, chunks: int, run: Any, *, labels: Tensor, **named: Any) -> Any:
    hidden = body_of(model)(**named).last_hidden_state.flatten(0, 1)
    targets = nn.functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous().flatten()
    pairs = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    total = sum(run(partial(_loss, model.lm_head), *pair) for pair in pairs)
    return SimpleNamespace(loss=total / labels.numel(), logits=None)


def _loss(head: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    """The summed cross-entropy of some tokens."""
    return nn.functional.cross_entropy(head(hidden).float(), targets, ignore_index=IGNORED, reduction="sum")
