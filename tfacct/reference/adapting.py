"""Low-rank adapters on a transformers class, as peft puts them there: part of the witness of training steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import peft
import torch
from peft.tuners.lora import LoraLayer


def adapted(model: Any, rank: int, modules: Sequence[str], *, wide: bool = True, dropout: float = 0.0) -> Any:
    """The same model, with peft's adapters in the modules of these names. `wide`: they are in fp32, as by default.

    A model whose blocks run again gets embeddings that require a gradient, which is peft's own doing.
    """
    asked = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(modules), lora_dropout=dropout)
    own = model.dtype
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.get_peft_model(model, asked, autocast_adapter_dtype=wide)
    for layer in model.modules() if not wide else ():
        if isinstance(layer, LoraLayer):  # off meta peft itself gives them the dtype of the weights
            layer.lora_A.to(own), layer.lora_B.to(own)
    return model.train()
