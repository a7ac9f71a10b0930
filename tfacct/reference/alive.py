"""Bytes of the tensors that are alive while a step runs, operator by operator."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tfacct.reference.modes import Mode


class Peak(NamedTuple):
    """The most bytes alive in a step without its optimizer, and the operator that reached them."""

    bytes: int
    backward: bool
    operator: str


class Alive(Mode):  # type: ignore[no-untyped-call]
    """Bytes of the storages on a device that are alive, after every operator."""

    def __init__(self, device: str = "meta") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.now, self.backward, self.peak, self.forward = 0, False, Peak(0, False, ""), 0
        self.seen: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage not in self.seen:
            self.seen.add(storage)
            self.now += storage.nbytes()
            weakref.finalize(storage, self._freed, storage.nbytes())

    def _freed(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        for tensor in _tensors((args, result)):  # an index written as a list is no operator's result
            if tensor.device.type == self.device:
                self.add(tensor)
        if not self.backward:
            self.forward = max(self.forward, self.now)
        if self.now > self.peak.bytes:
            self.peak = Peak(self.now, self.backward, str(operator))
        return result


def _tensors(of: tuple[Any, ...] | list[Any]) -> Iterator[Tensor]:
    """Tensors in what an operator is given or gives, no deeper than lists: torch's walk through any nest takes as long
    as the operator."""
    for one in of:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, tuple | list):
            yield from _tensors(one)
