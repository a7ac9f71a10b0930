"""CUDA's kernels on the meta device, where torch would use its plainest kernels by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch._meta_registrations
import transformers
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from tfacct.meta.hooks import READS_TOKENS
from tfacct.meta.kernels import compiled

HALVES = (torch.bfloat16, torch.float16)
FLASH_HEAD = 256
"""Largest head of the flash kernel (`check_head_dim_size_flash` in ATen)."""
AUTOCAST = torch.autocast
GROUPED = torch._meta_registrations._meta_grouped_mm_common
ROW = 8
"""Alignment of mask rows for torch's efficient attention, in elements (`preprocess_mask` in ATen)."""


@contextmanager
def cuda_kernels() -> Iterator[None]:
    """Runs on meta what torch and transformers run on CUDA, without searching for packed sequences or padding."""
    with (
        compiled(),
        patch.object(nn.functional, "scaled_dot_product_attention", scaled_dot_product_attention),
        patch.object(nn.functional, "dropout", _dropout),
        patch("transformers.masking_utils.find_packed_sequence_indices", lambda *_, **__: None),
        patch("transformers.masking_utils.fast_all", lambda _: True),  # no token is padding
        patch.object(transformers.PreTrainedModel, READS_TOKENS, lambda *_, **__: None),
        patch("torch._meta_registrations._meta_grouped_mm_common", _grouped),
        patch.object(torch, "autocast", _autocast),
    ):
        yield


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch's attention with the kernel that CUDA uses. It has torch's name, by which autocast finds it."""
    if has_torch_function((q, k, v)):
        named: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
        named |= {"attn_mask": attn_mask, "enable_gqa": enable_gqa}
        found: Tensor = handle_torch_function(scaled_dot_product_attention, (q, k, v), q, k, v, **named)
        return found
    aten, grouped = torch.ops.aten, enable_gqa and q.shape[1] != k.shape[1]
    flash = attn_mask is None and q.dtype in HALVES and q.shape[-1] == v.shape[-1] <= FLASH_HEAD
    if flash:
        chosen = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)
    elif grouped:  # no other kernel supports it
        rest = (attn_mask, dropout_p, is_causal, None)
        chosen = aten._scaled_dot_product_attention_math(q, k, v, *rest, scale=scale, enable_gqa=True)
    else:
        bias = None if attn_mask is None else _bias(attn_mask, q, k)
        chosen = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, dropout_p, is_causal, scale=scale)
    result: Tensor = chosen[0]
    return result


def _bias(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """A mask for the efficient kernel: values to add, with rows padded to the alignment of the kernel."""
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=q.dtype, device=q.device))
    keys = mask.shape[-1]
    if any(stride % ROW for stride in mask.stride()[:-1]):
        mask = nn.functional.pad(mask, (0, ROW - keys % ROW))[..., :keys]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


def _grouped(a: Tensor, b: Tensor, *rest: Any, **named: Any) -> Any:
    """Grouped matmuls on meta, where torch supports only bf16. CUDA also supports fp32, expert by expert, with a result
    of the same strides (`_grouped_mm_cuda` in ATen)."""
    full = a.dtype == b.dtype == torch.float32
    with patch.object(torch, "_check", lambda *_, **__: None) if full else nullcontext():
        return GROUPED(a, b, *rest, **named)


def _autocast(device_type: str, *given: Any, **named: Any) -> AbstractContextManager[Any]:
    """torch's autocast has no meta device. Switching it off, as peft does for adapters of experts, has no effect."""
    return nullcontext() if device_type == "meta" else AUTOCAST(device_type, *given, **named)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, *_: object) -> Tensor:
    result: Tensor = torch.native_dropout(x, p, training)[0] if training and p else x
    return result
