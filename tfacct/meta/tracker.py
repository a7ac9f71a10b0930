"""Bytes of the tensors that are alive while a step runs, operator by operator."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tfacct.meta.dispatch import DispatchMode


class Peak(NamedTuple):
    """The peak bytes of a step without its optimizer, and the phase of the peak."""

    bytes: int
    phase: str


class LiveBytes(DispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the live storages on a device, after every operator. `phase`: the running phase of the step; `peak` has
    the phase of the peak."""

    def __init__(self, device: str = "meta", phase: Callable[[], str] = str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.phase = device, phase
        self.now, self.peak = 0, Peak(0, "")
        self.seen: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def add(self, *tensors: Tensor) -> None:
        """Counts the storages of tensors, each once, until they are freed."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage not in self.seen:
                self.seen.add(storage)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._freed, storage.nbytes())

    def _freed(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        for tensor in _tensors((args, result)):  # an index written as a list is not an operator's result
            if tensor.device.type == self.device:
                self.add(tensor)
        if self.now > self.peak.bytes:
            self.peak = Peak(self.now, self.phase())
        return result


def _tensors(values: tuple[Any, ...] | list[Any]) -> Iterator[Tensor]:
    """Tensors among an operator's arguments or results, including lists but no deeper nesting: torch's general tree
    walk takes as long as the operator."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
