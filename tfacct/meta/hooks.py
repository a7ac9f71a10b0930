"""Hooks on a forward pass: the tensors that autograd saves, and the modules that saved them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

import torch
from torch import Tensor, nn

READS_TOKENS = "warn_if_padding_and_no_attention_mask"
"""A method of transformers classes that reads the tokens, which have no values on meta."""
Visit: TypeAlias = Callable[[], None]
"""Called at each module of a pass, to show progress."""


class Saved(NamedTuple):
    """A tensor that autograd saved: its bytes, and the modules that saved it, in order."""

    bytes: int
    modules: tuple[str, ...]


class _Handle:
    """Stand-in for a saved tensor in autograd. It is freed with the operation that saved the tensor if no gradient
    needs that operation. The tensor itself would keep alive the operation that produced it."""


class _Request(NamedTuple):
    handle: ref[_Handle]
    module: str


class Running:
    """The running module: the innermost one in a forward pass; in a backward pass, the last one whose gradient was
    requested, `loss` before the first."""

    def __init__(self, visit: Callable[[], None]) -> None:
        self.modules, self.backward, self.visit = [""], "", visit

    @property
    def phase(self) -> str:
        """The phase of a training step, by the module that runs."""
        if self.backward:
            return f"{self.backward}, backward"
        return f"{self.modules[-1]}, forward" if len(self.modules) > 2 else "loss, forward"

    def leave(self) -> None:
        """A module ends its forward pass."""
        self.modules.pop()
        self.visit()

    def start_backward(self, module: str = "loss") -> None:
        """The backward pass reaches a module, or starts with the loss."""
        self.backward = module
        self.visit()


@contextmanager
def module_hooks(model: nn.Module, visit: Visit = lambda: None) -> Iterator[Running]:
    """Tracks the running module, and calls `visit` at each; in the backward pass by hooks on the graph, which keep no
    tensor alive."""
    running = Running(visit)

    def enter(name: str) -> Any:
        return lambda *_: running.modules.append(name)

    def leave(name: str) -> Any:
        def hook(_: nn.Module, __: Any, result: Any) -> None:
            running.leave()
            first = _first(result)
            if first is not None and first.grad_fn is not None:
                first.grad_fn.register_prehook(lambda *_: running.start_backward(name))

        return hook

    with ExitStack() as stack:
        for name, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(enter(name)).remove)
            stack.callback(module.register_forward_hook(leave(name)).remove)
        yield running


def _first(result: Any) -> Any:
    """The first tensor of a module's result."""
    if isinstance(result, Tensor):
        return result
    values = result if isinstance(result, tuple | list) else ()
    return next((value for value in values if isinstance(value, Tensor)), None)


def saved_tensors(model: nn.Module, run: Callable[[], Any], visit: Visit = lambda: None) -> list[Saved]:
    """Tensors saved by autograd after `run` has run the model, each storage once, without parameters and buffers."""
    weights = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    found, alive = dict[int, tuple[int, list[_Request]]](), list[torch.UntypedStorage]()
    with module_hooks(model, visit) as running:

        def pack(tensor: Tensor) -> _Handle:
            storage, handle = tensor.untyped_storage(), _Handle()
            if storage._cdata not in weights:
                alive.append(storage)  # or another tensor would get its address
                requests = found.setdefault(storage._cdata, (storage.nbytes(), []))[1]
                requests.append(_Request(ref(handle), running.modules[-1]))
            return handle

        with torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
            result = run()
        saved = [(size, [by.module for by in requests if by.handle() is not None]) for size, requests in found.values()]
    del result
    return [Saved(size, tuple(dict.fromkeys(modules))) for size, modules in saved if modules]


def _unpack(_: _Handle) -> Tensor:
    raise RuntimeError("no backward pass is run here")
