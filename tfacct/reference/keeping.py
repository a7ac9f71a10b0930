"""What a transformers class keeps for its backward pass and holds at its peak, on meta dressed as CUDA: a witness.

On meta nothing is computed, and every tensor is made: their storages are what a card would hold, once the kernels are
those that torch takes there. Nothing here knows a rule of what is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypedDict, Unpack
from unittest.mock import patch

import torch
import torch._meta_registrations
import transformers
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function
from transformers.initialization import no_init_weights

from tfacct.reference.alive import Alive, Peak
from tfacct.reference.autocasting import again, autocast
from tfacct.reference.meta_kernels import compiled
from tfacct.reference.saving import Saved, saved
from tfacct.reference.selective import attention_again

transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]

HALVES = (torch.bfloat16, torch.float16)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
WARNS = "warn_if_padding_and_no_attention_mask"
"""A method of the classes that looks at the tokens, of which there are none on meta."""
GROUPED = torch._meta_registrations._meta_grouped_mm_common
ROW = 8
"""Numbers that rows of a mask are aligned to for torch's efficient attention (`preprocess_mask` in ATen)."""


def trainable(
    config: Mapping[str, Any],
    attention: str,
    dtype: str,
    *,
    checkpoint: str = "none",
    weights: str | None = None,
    auto: str = "AutoModelForCausalLM",
) -> Any:
    """The transformers model of a config on meta, as `auto` builds it, ready to train. `checkpoint`: every block is run
    again (`full`), its `attention`, or `none`. `weights`: their dtype, where the pass casts them: it is under autocast
    then, as Trainer runs it."""
    fields = {name: value for name, value in config.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **fields)
    with torch.device("meta"), warnings.catch_warnings(), no_init_weights():
        warnings.simplefilter("ignore")
        built = getattr(transformers, auto).from_config(
            made, attn_implementation=attention, dtype=DTYPES[weights or dtype]
        )
        built.tie_weights()
        cast = DTYPES[dtype] if weights not in (None, dtype) else None
        if checkpoint == "full":
            built.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, **again(cast)})
        if cast is not None:
            built.forward = partial(_inside, cast, built.forward)
    return attention_again(built.train(), cast) if checkpoint == "attention" else built.train()


def _inside(dtype: torch.dtype, forward: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with autocast(dtype):
        return forward(*args, **named)


def kept(model: Any, batch: int, tokens: int, source: int = 0) -> list[Saved]:
    """Tensors that autograd saves in a forward pass with a loss, parameters and buffers apart. `source`: tokens of a
    source, in a model that has an encoder of one."""
    given = inputs(model, batch, tokens, source)
    with as_on_cuda():
        return saved(model, lambda: loss_of(model, given))


class There(TypedDict, total=False):
    """What is there beside a step: tokens of a `source`, gradients of an earlier batch (`accumulate`), the logits that
    the caller keeps (`holds_logits`), tensors of the model that are neither parameters nor buffers, as scales of
    weights in 4 bits are (`beside`)."""

    source: int
    accumulate: bool
    holds_logits: bool
    beside: Iterable[Tensor]


def peak(model: Any, batch: int, tokens: int, **there: Unpack[There]) -> Peak:
    """The most bytes alive at any operator of a step from its forward pass to its last gradient."""
    return _watched(model, batch, tokens, **there).peak


def forward_peak(model: Any, batch: int, tokens: int, **there: Unpack[There]) -> int:
    """The most bytes alive at any operator of a forward pass."""
    return _watched(model, batch, tokens, **there).forward


def _watched(
    model: Any,
    batch: int,
    tokens: int,
    *,
    source: int = 0,
    accumulate: bool = False,
    holds_logits: bool = False,
    beside: Iterable[Tensor] = (),
) -> Alive:
    read = inputs(model, batch, tokens, source)
    alive = Alive()
    if accumulate:
        with as_on_cuda():
            loss_of(model, read).backward()
    gradients = (parameter.grad for parameter in model.parameters() if parameter.grad is not None)
    for tensor in (*model.parameters(), *model.buffers(), *gradients, *beside, *read.values()):
        alive.add(tensor)
    with warnings.catch_warnings(), as_on_cuda(), alive:
        warnings.simplefilter("ignore")
        given = _forward(model, read)
        loss, logits = given.loss, given.logits if holds_logits else None
        del given
        alive.backward = True
        loss.backward()
    del logits
    return alive


def inputs(model: Any, batch: int, tokens: int, source: int = 0) -> dict[str, Tensor]:
    """A batch on meta, with its labels: tokens, of which a sequence's class is the first; a source, whose target is the
    labels; or images of the model's own size, in fp32 as an image processor makes them."""

    def ids(*sizes: int) -> Tensor:
        return torch.zeros(sizes, dtype=torch.long, device="meta")

    if model.main_input_name == "pixel_values":
        side = model.config.image_size
        pixels = torch.zeros(batch, model.config.num_channels, side, side, device="meta")
        return {"pixel_values": pixels, "labels": ids(batch)}
    read = ids(batch, tokens)
    if source:
        return {"input_ids": ids(batch, source), "labels": read}
    return {"input_ids": read, "labels": read}


def _forward(model: Any, given: Mapping[str, Tensor]) -> Any:
    """The loss and the logits. Of a model that reads a source tokens are the labels, of which it shifts a copy."""
    if "pixel_values" in given:
        return model(**given)
    of_sequence = type(model).__name__.endswith("ForSequenceClassification")
    return model(**{**given, **({"labels": given["labels"][:, 0]} if of_sequence else {})}, use_cache=False)


def loss_of(model: Any, given: Mapping[str, Tensor]) -> Any:
    """The loss of a batch; its logits are gone."""
    return _forward(model, given).loss


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """On meta torch takes its plainest kernels; on a card it takes these, and does not look for packed sequences."""
    with (
        compiled(),
        patch.object(nn.functional, "scaled_dot_product_attention", scaled_dot_product_attention),
        patch.object(nn.functional, "dropout", _dropout),
        patch("transformers.masking_utils.find_packed_sequence_indices", lambda *_, **__: None),
        patch("transformers.masking_utils.fast_all", lambda _: True),  # a mask of tokens that are all there
        patch.object(transformers.PreTrainedModel, WARNS, lambda *_, **__: None),
        patch("torch._meta_registrations._meta_grouped_mm_common", _grouped),
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
    **_: object,
) -> Tensor:
    """torch's attention with the kernel that a card takes: named as torch's, so that autocast knows it."""
    if has_torch_function((q, k, v)):
        rest = (attn_mask, dropout_p, is_causal, scale)
        found: Tensor = handle_torch_function(scaled_dot_product_attention, (q, k, v), q, k, v, *rest)
        return found
    aten = torch.ops.aten
    if attn_mask is None and q.dtype in HALVES and q.shape[-1] == v.shape[-1]:  # as the flash kernel asks
        chosen = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)
    else:
        bias = None if attn_mask is None else _bias(attn_mask, q, k)
        chosen = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, dropout_p, is_causal, scale=scale)
    result: Tensor = chosen[0]
    return result


def _bias(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """A mask as the efficient kernel is handed it: numbers to add, rows padded to where the kernel can read them."""
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=q.dtype, device=q.device))
    keys = mask.shape[-1]
    if any(stride % ROW for stride in mask.stride()[:-1]):
        mask = nn.functional.pad(mask, (0, ROW - keys % ROW))[..., :keys]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


def _grouped(a: Tensor, b: Tensor, *rest: Any, **named: Any) -> Any:
    """Experts' products on meta, which lets bf16 alone pass; a card multiplies fp32 too, one expert after the other,
    and its result has the same strides (`_grouped_mm_cuda` in ATen)."""
    full = a.dtype == b.dtype == torch.float32
    with patch.object(torch, "_check", lambda *_, **__: None) if full else nullcontext():
        return GROUPED(a, b, *rest, **named)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, *_: object) -> Tensor:
    result: Tensor = torch.native_dropout(x, p, training)[0] if training and p else x
    return result
