"""A dispatch mode that sees every operator that runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch's mode without its compiler: what torch puts around each call of `__torch_dispatch__` for the compiler
    takes longer than the operator. A torch that no longer asks runs as usual."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
