"""torch's compiled shape kernels on meta, if no size is a symbol.

On meta, torch prefers kernels written in Python to its compiled ones. Symbolic sizes need them; for numbers both give
the same shapes, and a product of scalars takes a hundred times as long in Python.

This uses a private interface of torch, the library in which it registers them. With another interface, torch's kernels
stay, and everything takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch._decomp
import torch._meta_registrations as registrations

LIBRARY = "_meta_lib_dont_use_me_use_register_meta"
"""torch's library of Python kernels."""


class _PythonKernels:
    """The kernels in Python that replace compiled ones, and torch's library of them, None while they are off."""

    def __init__(self) -> None:
        self.library: Any = getattr(registrations, LIBRARY)
        self.kernels = _written(self.library)
        self.separate = False  # True if kernels that replace none have a separate library

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
    """torch's Python kernels by operator name; of several, the most specific one, as in torch."""
    table = torch._decomp.global_decomposition_table
    every: Mapping[Any, Any] = {**table["pre_autograd"], **table["post_autograd"], **table["meta"]}
    named = {operator.name(): kernel for operator, kernel in every.items()}
    return {name: named[name] for name in (f"aten::{key.split('/')[1]}" for key in library._op_impls)}


_python_kernels: _PythonKernels | None = None
_symbols = False


@contextmanager
def compiled() -> Iterator[None]:
    """Makes operators on meta run torch's compiled kernels in this process, except on symbols."""
    with nullcontext() if _symbols else _put(False):
        yield


@contextmanager
def of_symbols() -> Iterator[None]:
    """Makes operators on meta accept symbolic sizes, as by default."""
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
    except (AttributeError, KeyError):  # another interface of torch
        yield
        return
    before = _python_kernels.library is not None
    _python_kernels.put(there)
    try:
        yield
    finally:
        _python_kernels.put(before)
