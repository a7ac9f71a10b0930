"""State of torch's optimizers for the parameters of a model on meta."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adamax, AdamW, NAdam, Optimizer, RMSprop

OPTIMIZERS: Mapping[str, Callable[[Any], Optimizer]] = {
    # Fused kernels and loops do not run on meta. They have the same state, created by the same code.
    **dict.fromkeys(("adamw", "adamw-foreach", "adamw-for-loop"), lambda of: AdamW(of, foreach=True)),
    "adamw-amsgrad": lambda of: AdamW(of, foreach=True, amsgrad=True),
    "rmsprop": lambda of: RMSprop(of, foreach=True),
    "adagrad": lambda of: Adagrad(of, foreach=True),
    "adamax": lambda of: Adamax(of, foreach=True),
    "nadam": lambda of: NAdam(of, foreach=True),
    **dict.fromkeys(("sgd", "sgd-foreach"), lambda of: SGD(of, foreach=True)),
    **dict.fromkeys(("sgd-momentum", "sgd-momentum-foreach"), lambda of: SGD(of, momentum=0.9, foreach=True)),
}
"""torch's optimizers that run on meta, by their names here."""


class Trained(NamedTuple):
    """A trained parameter: shape, bytes per element, whether it is in a layer, whether it is an embedding."""

    shape: tuple[int, ...]
    width: int
    in_layer: bool
    embedding: bool


def trained_parameters(model: nn.Module) -> list[Trained]:
    """The parameters that an optimizer gets, in the model's order."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [
        Trained(tuple(one.shape), one.element_size(), any(map(str.isdigit, name.split("."))), id(one) in tables)
        for name, one in model.named_parameters()
        if one.requires_grad
    ]


def state_bytes(model: Any, name: str) -> int | None:
    """Bytes of an optimizer's state after a step on a model's parameters; None if it does not run on meta."""
    if name not in OPTIMIZERS:
        return None
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    optimizer = OPTIMIZERS[name](trained)
    optimizer.step()
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(optimizer))


def tensors(optimizer: Optimizer) -> list[Tensor]:
    """Tensors of an optimizer's state."""
    values: list[Any] = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if isinstance(value, Tensor)]
