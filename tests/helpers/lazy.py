"""Torch and what needs it, imported when a test first uses it: to collect tests takes none of them."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class Lazy:
    """A module that is imported when a name in it is first read or set."""

    __slots__ = ("_module",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_module", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_mock_name":  # pytest asks this of everything in a file
            raise AttributeError(name)
        return getattr(import_module(self._module), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(import_module(self._module), name, value)


def lazy(name: str) -> Any:
    """`torch = lazy("torch")`: the module, for the head of a test file."""
    return Lazy(name)


def with_torch(*values: Any) -> Any:
    """A parameter whose test is skipped where torch and fvcore are not installed."""
    return pytest.param(*values, marks=needs("torch", "fvcore"))


def needs(*modules: str) -> pytest.MarkDecorator:
    """`pytestmark = needs("torch", "fvcore")`: skips a file's tests where one of these is not installed."""
    missing = [name for name in modules if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
