"""A loss of chunks for a transformers model: a witness, in plain torch."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

IGNORED = -100
"""The label of a token that has none: the last of a sequence."""


def loss_in_chunks(model: nn.Module, chunks: int) -> Any:
    """The model, its head and its loss run for some tokens at a time, and again in the backward pass."""
    model.forward = partial(_forward, model, chunks)
    return model


def _forward(model: Any, chunks: int, *, labels: Tensor, **named: Any) -> Any:
    hidden = model.base_model(**named).last_hidden_state.flatten(0, 1)
    targets = nn.functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous().flatten()
    one = partial(_loss, model.lm_head)
    pieces = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    total = sum(checkpoint(one, *piece, use_reentrant=False) for piece in pieces)
    return SimpleNamespace(loss=total / labels.numel(), logits=None)


def _loss(head: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    """The summed cross entropy of some tokens."""
    return nn.functional.cross_entropy(head(hidden).float(), targets, ignore_index=IGNORED, reduction="sum")
