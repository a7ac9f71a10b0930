"""A training step on meta: what autograd saves in the forward pass, and the peak bytes until the last gradient."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from tfacct.meta.cuda import cuda_kernels
from tfacct.meta.hooks import Saved, Visit, module_hooks, saved_tensors
from tfacct.meta.model import forward
from tfacct.meta.tracker import LiveBytes

Forward = Callable[[Any, Mapping[str, Tensor]], Any]
"""Runs a model on a batch: a result with `loss` and `logits`."""


def saved(model: Any, batch: Mapping[str, Tensor], run: Forward = forward, visit: Visit = lambda: None) -> list[Saved]:
    """Tensors that autograd saves in a forward pass with a loss, without parameters and buffers."""
    with cuda_kernels():
        return saved_tensors(model, lambda: run(model, batch).loss, visit)


def watch(
    model: Any,
    batch: Mapping[str, Tensor],
    run: Forward = forward,
    *,
    gradient_accumulation: bool = False,
    keep_logits: bool = False,
    constants: Iterable[Tensor] = (),
    visit: Visit = lambda: None,
) -> LiveBytes:
    """Tracks the bytes alive from a forward pass to the last gradient.

    `gradient_accumulation`: gradients of an earlier micro-batch exist. `keep_logits`: the training loop keeps the
    logits. `constants`: tensors of the model that are neither parameters nor buffers, such as scales of 4-bit weights.
    """
    if gradient_accumulation:
        with cuda_kernels():
            run(model, batch).loss.backward()
    with warnings.catch_warnings(), cuda_kernels(), module_hooks(model, visit) as running:
        warnings.simplefilter("ignore")
        live = LiveBytes(phase=lambda: running.phase)
        live.add(*model.parameters(), *model.buffers(), *constants, *batch.values())
        live.add(*(parameter.grad for parameter in model.parameters() if parameter.grad is not None))
        with live:
            result = run(model, batch)
            loss, logits = result.loss, result.logits if keep_logits else None
            del result
            running.start_backward()
            loss.backward()
        del logits
    return live
