"""Tensors that autograd saves in a forward pass, and the modules that asked for them.

Nothing here knows a rule of what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from tfacct.architecture.transformer import Transformer
from tfacct.reference.alive import Alive, Peak
from tfacct.reference.meta_kernels import compiled
from tfacct.reference.model import Inputs, build, inputs
from tfacct.reference.running import DTYPES


class _Packed:
    """Stands for a tensor that autograd holds: it goes with the operation that asked for it, where no gradient needs
    that. The tensor itself would hold the operation that it is the result of."""


class _Asked(NamedTuple):
    """A request to save a tensor, and the module that it came from."""

    packed: ref[_Packed]
    module: str


class Saved(NamedTuple):
    """A tensor that autograd saved: its bytes, and the modules that asked for it, in order."""

    bytes: int
    modules: tuple[str, ...]


def saved(model: nn.Module, run: Callable[[], Any]) -> list[Saved]:
    """Tensors that autograd holds once `run` has run the model, each storage once, without parameters and buffers."""
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    running, found, alive = [""], dict[int, tuple[int, list[_Asked]]](), list[torch.UntypedStorage]()

    def enter(name: str) -> Any:
        return lambda *_: running.append(name)

    def leave(*_: object) -> None:
        running.pop()

    def save(tensor: Tensor) -> _Packed:
        storage, packed = tensor.untyped_storage(), _Packed()
        if storage._cdata not in own:
            alive.append(storage)  # or its address would be another's next
            found.setdefault(storage._cdata, (storage.nbytes(), []))[1].append(_Asked(ref(packed), running[-1]))
        return packed

    with ExitStack() as stack:
        for name, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(enter(name)).remove)
            stack.callback(module.register_forward_hook(leave).remove)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(save, _unpacked))
        result = run()
        there = [(size, [by.module for by in asked if by.packed() is not None]) for size, asked in found.values()]
    del result
    return [Saved(size, tuple(dict.fromkeys(modules))) for size, modules in there if modules]


def _unpacked(_: _Packed) -> Tensor:
    raise RuntimeError("no backward pass is run here")


def mean_of(model: nn.Module, given: Inputs) -> Tensor:
    """The loss of the reference model, as its timed passes take it: the mean of its results."""
    results: Tensor = model(*given.all)[0]
    return results.float().mean()


@compiled()
def kept(shape: Transformer, dtype: str, batch: int, tokens: int, source: int = 0) -> list[Saved]:
    """Tensors that the reference model saves in a training pass over whole sequences and sources, on meta."""
    model = build(shape, dtype=DTYPES[dtype])
    of, read = DTYPES[dtype], source
    given = inputs(shape, batch=batch, tokens=tokens, context=tokens, dtype=of, source=read, new_source=read)
    return saved(model, lambda: mean_of(model, given))


def _constants(model: nn.Module) -> Iterator[Tensor]:
    """Tensors of the model that are no parameters: they are there before an operator meets them."""
    for module in model.modules():
        for own in vars(module).values():
            if isinstance(own := getattr(own, "frequencies", own), Tensor):
                yield own


@compiled()
def peak(shape: Transformer, dtype: str, batch: int, tokens: int, source: int = 0) -> Peak:
    """The most bytes alive at any operator of the reference model's step, from its forward pass to its last gradient,
    on meta. The inputs are the caller's."""
    model = build(shape, dtype=DTYPES[dtype])
    of, read = DTYPES[dtype], source
    given = inputs(shape, batch=batch, tokens=tokens, context=tokens, dtype=of, source=read, new_source=read)
    alive = Alive()
    for tensor in (*model.parameters(), *_constants(model), given.tokens, given.positions):
        alive.add(tensor)
    with alive:
        loss = mean_of(model, given)
        alive.backward = True
        loss.backward()  # type: ignore[no-untyped-call]
    return alive.peak
