"""LoRA on a transformers class as in peft, and 4-bit weights as in bitsandbytes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import peft
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tfacct.meta.chunked_loss import body_of

BLOCK, SCALES, CODES = 64, 256, 16
"""bitsandbytes' defaults for nf4: weights that share a scale, scales that share a scale, codes of a weight."""


def add_adapters(model: Any, rank: int, modules: Sequence[str], *, fp32: bool = True, dropout: float = 0.0) -> Any:
    """The same model, with peft's adapters in the modules of these names. `fp32`: peft's default dtype of adapters.

    peft makes the embeddings of a model with recomputation require a gradient.
    """
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_targets(modules), lora_dropout=dropout)
    dtype = model.dtype
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.get_peft_model(model, config, autocast_adapter_dtype=fp32)
    for layer in model.modules() if not fp32 else ():
        if isinstance(layer, LoraLayer):  # outside meta, peft gives them the dtype of the weights
            layer.lora_A.to(dtype), layer.lora_B.to(dtype)
    return model.train()


def _targets(modules: Sequence[str]) -> str | list[str]:
    """Names for peft: a regular expression for full names with a star for the layer number, because a plain name may be
    the end of another name."""
    if not any("*" in name for name in modules):
        return list(modules)
    return "|".join(re.escape(name).replace(r"\*", r"\d+") for name in modules)


def in_4_bits(model: Any) -> Any:
    """The same model on meta, with the linear layers of its base model in nf4 with double quantization, as in
    bitsandbytes."""
    import bitsandbytes

    made_of: Any = bitsandbytes.nn  # its calls are untyped
    dtype = model.dtype
    for holder, name, layer in [*_linear(model)]:
        with torch.device("meta"):
            sides = layer.weight.shape if isinstance(layer, Conv1D) else layer.weight.shape[::-1]
            made = made_of.Linear4bit(*sides, bias=False, compute_dtype=dtype)
        made.bias = layer.bias
        made.weight = made_of.Params4bit(
            torch.empty(-(-layer.weight.numel() // 2), 1, dtype=torch.uint8, device="meta"),
            requires_grad=False,
            quant_type="nf4",
            quant_state=_state(layer.weight.T if isinstance(layer, Conv1D) else layer.weight),
            bnb_quantized=True,
        )
        made.quant_state = made.weight.quant_state
        setattr(holder, name, made)
    model.is_loaded_in_4bit = True
    return model


def constants(model: Any) -> list[Tensor]:
    """Tensors of 4-bit weights that are not parameters: scales, codes and means."""
    states = (layer.weight.quant_state for layer in model.modules() if hasattr(layer, "quant_state"))
    found = (each for state in states for each in (state, state.state2, state.offset))
    tensors = ((each,) if isinstance(each, Tensor) else (each.absmax, each.code) for each in found)
    return [tensor for group in tensors for tensor in group]


def _linear(model: Any) -> Iterator[tuple[nn.Module, str, Any]]:
    for holder in body_of(model).modules():
        for name, layer in holder.named_children():
            if type(layer) in (nn.Linear, Conv1D):
                yield holder, name, layer


def _state(weight: Tensor) -> Any:
    from bitsandbytes import functional

    made_of: Any = functional

    def full(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device="meta")

    blocks = -(-weight.numel() // BLOCK)
    inner = made_of.QuantState(full(-(-blocks // SCALES)), code=full(SCALES), blocksize=SCALES, dtype=torch.float32)
    return made_of.QuantState(
        torch.empty(blocks, dtype=torch.uint8, device="meta"),
        shape=weight.shape,
        code=full(CODES),
        blocksize=BLOCK,
        quant_type="nf4",
        dtype=weight.dtype,
        offset=full(),
        state2=inner,
    )
