"""torch.autocast on the meta device as on CUDA: which calls are cast, and how long casts of weights are alive.

torch's autocast ignores meta tensors. This class casts the same arguments of the same functions, in the same order and
through the same cache. The functions are those of CUDA's lists in ATen's `autocast_mode.h` that language models call.
The resulting graph was compared, node by node, with that of torch's autocast for CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

COMPUTE = frozenset(
    ("linear", "matmul", "bmm", "baddbmm", "addmm", "mm", "conv1d", "conv2d", "einsum", "scaled_dot_product_attention")
)
"""Functions that run in the dtype of autocast (AT_FORALL_LOWER_PRECISION_FP)."""
FP32 = frozenset(("pow", "rsqrt", "reciprocal", "exp", "log", "log1p", "softplus", "layer_norm", "rms_norm"))
"""Functions that run in fp32 (AT_FORALL_FP32)."""
SUMS = frozenset(("softmax", "log_softmax", "sum", "cumsum", "prod"))
"""Functions with an fp32 result if no dtype is given (AT_FORALL_FP32_SET_OPT_DTYPE)."""


class Autocast(TorchFunctionMode):
    """A region of autocast. A weight is cast once; the cast lives until the region ends."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.on = dtype, True
        self.cache: dict[int, tuple[Tensor, Tensor]] = {}

    def __exit__(self, *raised: Any) -> None:
        self.cache.clear()
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(function, "__name__", "").strip("_"), kwargs or {}
        if self.on and name in COMPUTE:
            args, named = _each(self.cast, args, named)
        elif self.on and name in FP32:
            args, named = _each(_fp32, args, named)
        elif self.on and name in SUMS and named.get("dtype") is None and args[0].is_floating_point():
            named = {**named, "dtype": torch.float32}
        elif self.on and name == "cross_entropy" and args[0].dtype == self.dtype:
            return _cross_entropy(*args, **named)
        return function(*args, **named)

    def cast(self, given: Any) -> Any:
        """An argument in the region's dtype; a weight is cast once."""
        if not isinstance(given, Tensor) or not given.is_floating_point() or given.dtype == self.dtype:
            return given
        if given.dtype != torch.float32 or not given.requires_grad or not given.is_leaf or given._is_view():
            return given.to(self.dtype)
        if id(given) not in self.cache:
            self.cache[id(given)] = given, given.to(self.dtype)
        return self.cache[id(given)][1]

    @contextmanager
    def off(self) -> Iterator[None]:
        """A part of the region without casts."""
        before, self.on = self.on, False
        yield
        self.on = before


def _fp32(given: Any) -> Any:
    return given.float() if isinstance(given, Tensor) and given.is_floating_point() else given


def _cross_entropy(scores: Tensor, targets: Tensor, **named: Any) -> Tensor:
    """torch's cross-entropy: log-softmax in the dtype of the logits, selection of the targets in fp32."""
    given = {name: named[name] for name in ("ignore_index", "reduction") if name in named}
    return nn.functional.nll_loss(torch.log_softmax(scores, 1).float(), targets, **given)


def _each(cast: Callable[[Any], Any], args: Any, named: Any) -> tuple[Any, Any]:
    """Arguments, cast from the last to the first, as in a compiled call."""
    casted = {name: cast(given) for name, given in reversed(named.items())}
    return [cast(given) for given in reversed(args)][::-1], dict(reversed(casted.items()))


@contextmanager
def autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """A region of autocast in this dtype on meta; None: no autocast. Classes that query autocast see it."""
    if dtype is None:
        yield
        return
    region = Autocast(dtype)

    def inner(_: str, *, enabled: bool, **__: object) -> AbstractContextManager[Any]:
        return nullcontext() if enabled else region.off()

    with (
        region,
        patch.object(torch, "autocast", inner),
        patch.object(torch, "is_autocast_enabled", lambda *_: region.on),
        patch.object(torch, "get_autocast_dtype", lambda *_: dtype),
    ):
        yield


def checkpoint_options(dtype: torch.dtype | None) -> dict[str, Any]:
    """Options of torch.utils.checkpoint that run recomputation under the same autocast."""
    return {} if dtype is None else {"context_fn": lambda: (nullcontext(), autocast(dtype))}
