"""Watches what ranks send: torch's operations, whatever runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def watching(kinds: Mapping[str, str], sent: Callable[[str, str, int], None]) -> Any:
    """A mode in which `sent` is told each collective: torch's namespace for it, its kind, and the bytes of a result.

    `kinds`: torch's operations and what we call them.
    """
    import torch
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # it runs first, and what it sends on the way comes here
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            if func.namespace in ("_c10d_functional", "c10d") and name in kinds:
                of = args[0] if func.namespace == "c10d" else result
                of = of[0] if isinstance(of, list) else of
                assert isinstance(of, torch.Tensor)
                sent(func.namespace, kinds[name], of.numel() * of.element_size())
            return result

    return Watching()
