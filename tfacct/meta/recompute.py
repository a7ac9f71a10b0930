"""Recomputation of attention in the backward pass of a transformers class."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tfacct.architecture.words import ATTENTION_MODULES
from tfacct.meta.autocast import checkpoint_options


def recompute_attention(model: nn.Module, cast: torch.dtype | None = None) -> Any:
    """The model with its attention modules, but none inside another, under non-reentrant torch.utils.checkpoint.
    `cast`: the dtype of autocast."""
    outer = ""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ATTENTION_MODULES and not name.startswith(f"{outer}."):
            outer = name
            module.forward = partial(_recomputed, module.forward, checkpoint_options(cast))
    return model


def _recomputed(forward: Any, options: dict[str, Any], *args: Any, **named: Any) -> Any:
    if "hidden_states" in named:
        args = (named.pop("hidden_states"), *args)
    return checkpoint(partial(forward, **named), *args, use_reentrant=False, **options)
