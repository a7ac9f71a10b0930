"""A dispatch mode that sees every operator that runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch's mode without its compiler. torch's wrapper around each call of `__torch_dispatch__`, made for the
    compiler, takes longer than the operator. A torch without this wrapper runs as usual."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
