"""tfacct: an accountant for transformers. Exact parameters, FLOPs and KV-cache bytes from a config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfacct.base.version import __version__

if TYPE_CHECKING:
    from tfacct.api import Model, load
    from tfacct.base.errors import TfacctError

__all__ = ["Model", "TfacctError", "__version__", "load"]

_HOME = {"load": "tfacct.api", "Model": "tfacct.api", "TfacctError": "tfacct.base.errors"}


def __getattr__(name: str) -> Any:
    """Import the Python API only when it is asked for: the command line does without it."""
    if name not in _HOME:
        raise AttributeError(f"module 'tfacct' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
