"""What sees every operator that runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Torch's mode, in which nothing is compiled: what it would put around each call of `__torch_dispatch__`, for its
    compiler, takes longer than the operator. Where torch no longer asks, it does so again."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
