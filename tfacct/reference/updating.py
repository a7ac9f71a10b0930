"""What optimizers keep for real tensors and hold while they update them: a witness, which knows no rule of either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from tfacct.reference.alive import Alive

Made = Callable[[list[nn.Parameter]], list[Optimizer]]
"""What makes the optimizers of some parameters."""


class Updated(NamedTuple):
    """Bytes of the optimizers' state, and the most that a second step holds beside it, parameters and gradients."""

    states: int
    held: int


def updated(make: Made, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> Updated:
    """What optimizers keep and hold for parameters of these shapes, in this order."""
    parameters = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizers = make(parameters)
    _step(optimizers)
    alive = Alive("cpu")
    _all_alive(alive, [*parameters, *gradients])
    without = alive.now
    for optimizer in optimizers:
        _all_alive(alive, tensors(optimizer))
    before = alive.now
    with alive:
        _step(optimizers)
    return Updated(before - without, max(alive.peak.bytes - before, 0))


def _step(optimizers: Sequence[Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.step()


def _all_alive(alive: Alive, tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        alive.add(tensor)


def tensors(optimizer: Optimizer) -> list[torch.Tensor]:
    """Tensors of an optimizer's state."""
    values: list[Any] = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if isinstance(value, torch.Tensor)]


def quantized(optimizer: Optimizer) -> int:
    """Bytes of the state that an optimizer of bitsandbytes makes, which no step of it is needed for."""
    maker: Any = optimizer
    maker.check_overrides()
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            maker.init_state(group, parameter, number, index)
    storages = [tensor.untyped_storage() for tensor in tensors(optimizer)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())
