"""A transformers class on the meta device, ready to train: attention, dtype, recomputation and autocast."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.initialization import no_init_weights

from tfacct.meta.autocast import autocast, checkpoint_options
from tfacct.meta.recompute import recompute_attention

transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def config_of(fields: Mapping[str, Any]) -> Any:
    """The config object of transformers with these fields and its class's defaults.

    The fields are copied, because classes write into the dicts and lists that they receive.
    """
    copied = {name: deepcopy(value) for name, value in fields.items() if name != "model_type"}
    return transformers.AutoConfig.for_model(fields["model_type"], **copied)


def class_of(auto: str) -> Any:
    """A class of transformers by name, with the module's name if the class is not at the top level."""
    module, _, name = auto.rpartition(".")
    return getattr(import_module(f"transformers.{module}") if module else transformers, name)


def maker(auto: str) -> Callable[..., Any]:
    """The builder of this transformers class: an auto class, or the class if no auto class has it."""
    made: Callable[..., Any] = getattr(class_of(auto), "from_config" if auto.startswith("Auto") else "_from_config")
    return made


def build_model(
    fields: Mapping[str, Any],
    attention: str,
    dtype: str,
    *,
    recompute: str = "none",
    weights_dtype: str | None = None,
    auto: str = "AutoModelForCausalLM",
) -> Any:
    """The transformers model of a config on meta, built by `auto`, in training mode. `recompute`: every layer (`full`),
    its `attention`, or `none`. `weights_dtype`: dtype of the weights, if it is not that of the step, which then runs
    under autocast, as in Trainer."""
    config = config_of(fields)
    cast = DTYPES[dtype] if weights_dtype not in (None, dtype) else None
    with torch.device("meta"), warnings.catch_warnings(), no_init_weights():
        warnings.simplefilter("ignore")
        model = maker(auto)(config, attn_implementation=attention, dtype=DTYPES[weights_dtype or dtype])
        model.tie_weights()
        if recompute == "full":
            options = {"use_reentrant": False, **checkpoint_options(cast)}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    if cast is not None:
        under_autocast(model, cast)
    return recompute_attention(model.train(), cast) if recompute == "attention" else model.train()


def with_lora(
    model: Any, rank: int, modules: Iterable[str], *, fp32: bool = True, dropout: float = 0.0, in_4_bits: bool = False
) -> Any:
    """The model with peft's adapters, and optionally its other weights in 4 bits. Raises ImportError without peft or
    bitsandbytes."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns about missing CPU kernels
    from tfacct.meta import lora

    return lora.add_adapters(
        lora.in_4_bits(model) if in_4_bits else model, rank, [*modules], fp32=fp32, dropout=dropout
    )


def with_chunked_loss(model: Any, chunks: int, dtype: str, weights_dtype: str | None = None) -> Any:
    """The model, its loss computed in chunks."""
    from tfacct.meta.chunked_loss import loss_in_chunks

    return loss_in_chunks(model, chunks, DTYPES[dtype] if weights_dtype not in (None, dtype) else None)


def constants(model: Any) -> list[Tensor]:
    """Tensors of 4-bit weights that are not parameters."""
    from tfacct.meta import lora

    return lora.constants(model)


def under_autocast(model: Any, dtype: torch.dtype) -> None:
    """Runs the model's forward pass under autocast."""
    model.forward = partial(_forward_in, dtype, model.forward)


def _forward_in(dtype: torch.dtype, forward: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with autocast(dtype):
        return forward(*args, **named)


def inputs(model: Any, batch: int, tokens: int, source: int = 0) -> dict[str, Tensor]:
    """A batch on meta with labels: tokens, with one label per sequence for a sequence classifier; a `source`, with the
    target as labels; or images of the model's size, in fp32 as an image processor makes them."""

    def ids(*sizes: int) -> Tensor:
        return torch.zeros(sizes, dtype=torch.long, device="meta")

    if model.main_input_name == "pixel_values":
        side = model.config.image_size
        pixels = torch.zeros(batch, model.config.num_channels, side, side, device="meta")
        return {"pixel_values": pixels, "labels": ids(batch)}
    if model.main_input_name != "input_ids":
        raise TypeError(f"it reads {model.main_input_name}, not tokens or images")
    read = ids(batch, tokens)
    if source:
        return {"input_ids": ids(batch, source), "labels": read}
    return {"input_ids": read, "labels": read}


def packed_forward(model: Any, batch: Mapping[str, Tensor]) -> Any:
    """The same for sequences packed into one row, with the mask that separates them: a class computes it from position
    values, which do not exist on meta."""
    tokens, eager = batch["input_ids"].shape[-1], model.config._attn_implementation == "eager"
    dtype = model.dtype if eager else torch.bool
    mask = torch.zeros(1, 1, tokens, tokens, dtype=dtype, device="meta")
    return model(**batch, attention_mask=mask, use_cache=False)


def forward(model: Any, batch: Mapping[str, Tensor]) -> Any:
    """Loss and logits of a batch. In a model with a source, the tokens are a shifted copy of the labels."""
    if "pixel_values" in batch:
        return model(**batch)
    one_label = type(model).__name__.endswith("ForSequenceClassification")
    return model(**{**batch, **({"labels": batch["labels"][:, 0]} if one_label else {})}, use_cache=False)
