"""torch's compiled kernels for shapes on meta, wherever no size is a symbol.

On meta torch calls kernels written in Python before its compiled ones. Sizes that are symbols need them; for numbers
both give the same shapes, and a product of scalars takes a hundred times as long in Python.

Rests on a private interface of torch, the library that it registers them with. Where a torch has another one, its
kernels stay, and everything takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch._decomp
import torch._meta_registrations as registrations

LIBRARY = "_meta_lib_dont_use_me_use_register_meta"
"""Torch's library of kernels in Python."""


class _PythonKernels:
    """The kernels in Python that replace compiled ones, and torch's library of them, None while they are off."""

    def __init__(self) -> None:
        self.library: Any = getattr(registrations, LIBRARY)
        self.kernels = _written(self.library)
        self.separate = False  # True once kernels that replace none have a library of their own

    def put(self, there: bool) -> None:
        if there and self.library is None:
            self.library = _opened()
            for name, kernel in self.kernels.items():
                self.library.m.impl(name, "Meta", kernel)
        elif not there and self.library is not None:
            self.library._destroy()
            self.library = None
            if not self.separate:
                self._separate()

    def _separate(self) -> None:
        rest, self.separate = _opened(), True
        for name in [*self.kernels]:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
                rest.m.impl(name, "Meta", self.kernels.pop(name))
        setattr(registrations, LIBRARY, rest)


def _opened() -> Any:
    return torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]


def _written(library: Any) -> dict[str, Callable[..., Any]]:
    """Torch's kernels in Python by the names of their operators: as it does, of several the most specific one."""
    table = torch._decomp.global_decomposition_table
    every: Mapping[Any, Any] = {**table["pre_autograd"], **table["post_autograd"], **table["meta"]}
    named = {operator.name(): kernel for operator, kernel in every.items()}
    return {name: named[name] for name in (f"aten::{key.split('/')[1]}" for key in library._op_impls)}


_python_kernels: _PythonKernels | None = None
_symbols = False


@contextmanager
def compiled() -> Iterator[None]:
    """Operators on meta run torch's compiled kernels, in all of this process; but not among symbols."""
    with nullcontext() if _symbols else _put(False):
        yield


@contextmanager
def of_symbols() -> Iterator[None]:
    """Operators on meta take symbols for sizes, as they do by default."""
    global _symbols
    before, _symbols = _symbols, True
    try:
        with _put(True):
            yield
    finally:
        _symbols = before


@contextmanager
def _put(there: bool) -> Iterator[None]:
    global _python_kernels
    try:
        _python_kernels = _python_kernels or _PythonKernels()
    except (AttributeError, KeyError):  # another torch's interface
        yield
        return
    before = _python_kernels.library is not None
    _python_kernels.put(there)
    try:
        yield
    finally:
        _python_kernels.put(before)
