"""torch's memory tracker on the same step, independent of this program's tracker.

Uses a private module of torch; importing this raises ImportError without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed._tools import mod_tracker
from torch.distributed._tools.mem_tracker import MemTracker

from tfacct.meta.cuda import cuda_kernels
from tfacct.meta.model import forward

HOOK = "register_multi_grad_hook"


def tracked_peak(model: Any, batch: Mapping[str, Tensor]) -> int:
    """The peak bytes of a step without its optimizer, by torch's MemTracker, for a model that has not run yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _frozen_as_buffers(model)
        tracker = MemTracker()
        tracker.track_external(model, *batch.values())
        first = partial(_on_first, getattr(mod_tracker, HOOK))
        with cuda_kernels(), patch.object(mod_tracker, HOOK, first), tracker:
            forward(model, batch).loss.backward()
        found = tracker.get_tracker_snapshot("peak")[torch.device("meta")]
    return int(found["Total"])


def _frozen_as_buffers(model: Any) -> None:
    """Turns frozen parameters into buffers, because the tracker needs a gradient for every parameter."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, parameter.data)


def _on_first(hook: Callable[..., Any], tensors: Sequence[Tensor], called: Any, **options: Any) -> Any:
    """The tracker's hook on a module's inputs, applied to the first gradient only. The original waits for all gradients
    and keeps those that it has alive: one per decoder layer, until the last gradient of the encoder's output."""
    return hook(tensors[:1], called, **options)
