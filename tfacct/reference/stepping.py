"""More witnesses of a training step on meta: torch's own tracker of memory, and the states of its optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.optim import SGD, Adagrad, Adamax, AdamW, NAdam, Optimizer, RMSprop

from tfacct.reference.counting import PrivateInterfaceError
from tfacct.reference.keeping import as_on_cuda, inputs, loss_of

OPTIMIZERS: Mapping[str, Callable[[Any], Optimizer]] = {
    # Fused kernels and loops do not run on meta; their states are those of the others, made by the same code.
    **dict.fromkeys(("adamw", "adamw-foreach", "adamw-for-loop"), lambda of: AdamW(of, foreach=True)),
    "adamw-amsgrad": lambda of: AdamW(of, foreach=True, amsgrad=True),
    "rmsprop": lambda of: RMSprop(of, foreach=True),
    "adagrad": lambda of: Adagrad(of, foreach=True),
    "adamax": lambda of: Adamax(of, foreach=True),
    "nadam": lambda of: NAdam(of, foreach=True),
    **dict.fromkeys(("sgd", "sgd-foreach"), lambda of: SGD(of, foreach=True)),
    **dict.fromkeys(("sgd-momentum", "sgd-momentum-foreach"), lambda of: SGD(of, momentum=0.9, foreach=True)),
}
"""torch's optimizers that can be asked on meta, by this program's names."""

HOOK = "register_multi_grad_hook"


def tracked_peak(model: Any, batch: int, tokens: int, source: int = 0) -> int:
    """The most bytes alive in a step without its optimizer, by torch's MemTracker, of a model that has not run yet.
    `source`: tokens of a source, where it has an encoder of one.

    Raises PrivateInterfaceError where torch has no such tracker.
    """
    try:
        from torch.distributed._tools import mod_tracker
        from torch.distributed._tools.mem_tracker import MemTracker
    except ImportError as error:
        raise PrivateInterfaceError(str(error)) from error
    read = inputs(model, batch, tokens, source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _untrained_as_buffers(model)
        tracker = MemTracker()
        tracker.track_external(model, *read.values())
        with as_on_cuda(), patch.object(mod_tracker, HOOK, partial(_on_first, getattr(mod_tracker, HOOK))), tracker:
            loss_of(model, read).backward()
        found = tracker.get_tracker_snapshot("peak")[torch.device("meta")]
    return int(found["Total"])


def _untrained_as_buffers(model: Any) -> None:
    """Make parameters that are not trained buffers: the tracker wants a gradient of each."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, parameter.data)


def _on_first(hook: Callable[..., Any], tensors: Sequence[torch.Tensor], called: Any, **how: Any) -> Any:
    """The tracker's hook on what a module reads, on the first gradient alone. It waits for all, and holds those that it
    has: of every block of a decoder one, until the last gradient of what the encoder gave."""
    return hook(tensors[:1], called, **how)


def state_bytes(model: Any, name: str) -> int | None:
    """Bytes that an optimizer keeps for a model's parameters behind a step; None if it is not asked."""
    if name not in OPTIMIZERS:
        return None
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    made = OPTIMIZERS[name](trained)
    made.step()
    kept = (value for state in made.state.values() for value in state.values() if isinstance(value, torch.Tensor))
    return sum(tensor.numel() * tensor.element_size() for tensor in kept)
