"""A training step of the reference model: its inputs, and its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.meta.autocast import autocast
from tfacct.meta.model import DTYPES, under_autocast
from tfacct.reference.blocks import Block
from tfacct.reference.model import Inputs, build, inputs


def build_reference(shape: Transformer, attention: str, dtype: str, recompute: bool, weights_dtype: str) -> Any:
    """The reference model on meta, in training mode; under autocast if its weights have another dtype."""
    model: Any = build(shape, dtype=DTYPES[weights_dtype], fused=attention == "sdpa", recompute=recompute)
    if weights_dtype != dtype:
        under_autocast(model, DTYPES[dtype])
        for module in model.modules():
            if isinstance(module, Block):
                module.rerun = partial(_rerun_under_autocast, module.rerun, DTYPES[dtype])
    return model.train()


@contextmanager
def _rerun_under_autocast(rerun: Callable[[], AbstractContextManager[Any]], dtype: torch.dtype) -> Iterator[None]:
    """Makes recomputation of a layer also run under autocast."""
    with rerun(), autocast(dtype):
        yield


def batch_of(shape: Transformer, batch: int, tokens: int, source: int, dtype: str) -> dict[str, Any]:
    """A batch on meta for the reference model; its tokens are the labels."""
    given: Inputs = inputs(
        shape, batch=batch, tokens=tokens, context=tokens, dtype=DTYPES[dtype], source=source, new_source=source
    )
    read = {} if given.source is None else {"source": given.source}
    return {"tokens": given.tokens, "positions": given.positions, **read}


def forward(model: Any, batch: Mapping[str, Tensor]) -> Any:
    """Logits, and their cross-entropy in fp32. Raises UsageError for a model without logits of tokens or classes."""
    if model.lm_head is None and model.classifier is None:
        raise UsageError("the reference model has no loss: it gives no logits", "use a model with a head")
    logits = model(**batch)[0]
    labels = torch.zeros(logits.shape[:-1], dtype=torch.long, device="meta").flatten()
    return SimpleNamespace(loss=nn.functional.cross_entropy(logits.float().flatten(0, -2), labels), logits=logits)


def constants(model: nn.Module) -> Iterator[Tensor]:
    """Tensors of the model that are neither parameters nor buffers: rotary frequencies."""
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(tensor := getattr(value, "frequencies", value), Tensor):
                yield tensor
