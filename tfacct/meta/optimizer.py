"""Optimizers of torch and bitsandbytes: the bytes of their state, and what a step of theirs needs temporarily."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adamax, AdamW, NAdam, Optimizer, RMSprop

from tfacct.meta.tracker import LiveBytes

OPTIMIZERS: Mapping[str, Callable[[Any], Optimizer]] = {
    # Fused kernels and loops do not run on meta. Their state is that of the others, made by the same code.
    **dict.fromkeys(("adamw", "adamw-foreach", "adamw-for-loop"), lambda of: AdamW(of, foreach=True)),
    "adamw-amsgrad": lambda of: AdamW(of, foreach=True, amsgrad=True),
    "rmsprop": lambda of: RMSprop(of, foreach=True),
    "adagrad": lambda of: Adagrad(of, foreach=True),
    "adamax": lambda of: Adamax(of, foreach=True),
    "nadam": lambda of: NAdam(of, foreach=True),
    **dict.fromkeys(("sgd", "sgd-foreach"), lambda of: SGD(of, foreach=True)),
    **dict.fromkeys(("sgd-momentum", "sgd-momentum-foreach"), lambda of: SGD(of, momentum=0.9, foreach=True)),
}
"""torch's optimizers that run on meta, by this program's names."""

Make = Callable[[list[nn.Parameter]], list[Optimizer]]
"""Builds the optimizers of some parameters."""


class Trained(NamedTuple):
    """A trained parameter: its shape, the bytes of an element, whether a layer has it, whether it is an embedding."""

    shape: tuple[int, ...]
    width: int
    in_layer: bool
    embedding: bool


def trained_parameters(model: nn.Module) -> list[Trained]:
    """The parameters that an optimizer takes, in the model's order."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [
        Trained(tuple(one.shape), one.element_size(), any(map(str.isdigit, name.split("."))), id(one) in tables)
        for name, one in model.named_parameters()
        if one.requires_grad
    ]


def state_bytes(model: Any, name: str) -> int | None:
    """Bytes of an optimizer's state after a step on a model's parameters; None of one that does not run on meta."""
    if name not in OPTIMIZERS:
        return None
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    optimizer = OPTIMIZERS[name](trained)
    optimizer.step()
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(optimizer))


class Updated(NamedTuple):
    """Bytes of the optimizers' state, and the most that a second step needs on top, parameters and gradients apart."""

    state: int
    temporary: int


def updated(make: Make, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> Updated:
    """State and temporary memory of optimizers for real parameters of these shapes, in this order."""
    parameters = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizers = make(parameters)
    _step(optimizers)
    live = LiveBytes("cpu")
    live.add(*parameters, *(parameter.grad for parameter in parameters if parameter.grad is not None))
    without = live.now
    for optimizer in optimizers:
        live.add(*tensors(optimizer))
    before = live.now
    with live:
        _step(optimizers)
    return Updated(before - without, max(live.peak.bytes - before, 0))


def _step(optimizers: Sequence[Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.step()


def tensors(optimizer: Optimizer) -> list[Tensor]:
    """Tensors of an optimizer's state."""
    values: list[Any] = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if isinstance(value, Tensor)]


def quantized(optimizer: Optimizer) -> int:
    """Bytes of the state that an optimizer of bitsandbytes makes, without a step."""
    maker: Any = optimizer
    maker.check_overrides()
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            maker.init_state(group, parameter, number, index)
    storages = [tensor.untyped_storage() for tensor in tensors(optimizer)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())
