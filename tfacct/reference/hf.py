"""The transformers model of the same config on the meta device, for cross-checks.

A small model may run on the CPU with real values instead: the counts and the time are the same.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from inspect import signature
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers.initialization import no_init_weights
from transformers.modeling_outputs import BaseModelOutput

from tfacct.meta.hooks import READS_TOKENS
from tfacct.meta.kernels import compiled
from tfacct.meta.model import class_of, config_of, maker
from tfacct.reference.counting import ByModule
from tfacct.reference.hf_inside import composite_config, language_model_of
from tfacct.reference.hf_meta import as_on_meta
from tfacct.reference.hf_towers import of_audio, of_grid, of_image, of_spectrogram

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Fields with the number of experts of a class."""
IMAGES = {"": ("vqmodel",), "encoder": ("vision_tower", "multi_modal_projector")}
"""Modules that compute image tokens in a class that gets only tokens, by the module of its base model: they are not
of the language model's."""
GIVEN = "cross_attention_states"
"""Argument with the features of a source from another model."""
MASKED = ("megatron-bert", "rembert", "roformer", "big_bird", "dpr")
"""Types whose class reads the values of a mask, which do not exist on meta: it gets a mask that masks nothing."""
LENGTHS = ("xlm", "flaubert")
"""Types whose class reads the lengths of its texts."""


@compiled()
def build(config: Mapping[str, Any], auto: str = "AutoModelForCausalLM", device: str = "meta") -> Any:
    """The model of a config, built by this transformers class, with weights on `device`: zeros, because no count
    depends on them and random values take half of the time."""
    made = config_of(config)
    if getattr(made, "use_cache", None) is False:  # MPT's default is false: it would not return its cache
        made.use_cache = True
    hf_class = class_of(auto)
    composite = None if auto.startswith("Auto") else composite_config(hf_class, made)
    on = torch.device(device if composite is None else "meta")
    with on, warnings.catch_warnings(), no_init_weights(), _settings_by_default():
        warnings.simplefilter("ignore")
        built = maker(auto)(
            made if composite is None else composite,
            attn_implementation="eager",
            **({"experts_implementation": "batched_mm"} if _routed(made) else {}),
        )
    if composite is None and {weight.device.type for weight in built.parameters()} - {torch.device(device).type}:
        built = built.to(device)  # XLNet's class creates its weights on the CPU, for any device
    body = getattr(built, "model", built)
    for holder, names in IMAGES.items():
        container = getattr(body, holder, None) if holder else body
        for name in names:
            if hasattr(container, name):
                setattr(container, name, None)
    built.tie_weights()
    built = built if composite is None else language_model_of(built, device)
    if device != "meta":
        for weight in built.parameters():
            weight.data.zero_()
    for module in built.modules():
        if hasattr(module, READS_TOKENS):
            setattr(module, READS_TOKENS, lambda *_: None)
    return built.eval().requires_grad_(False)


def _settings_by_default() -> AbstractContextManager[object]:
    """Skips generation settings of a config, which do not affect counts: copying them takes a fifth of the time to
    build a model. It then has the defaults of its class."""
    return patch.object(transformers.GenerationConfig, "from_model_config", side_effect=NotImplementedError)


def _routed(config: Any) -> bool:
    """True if it has experts, which are counted correctly with only one of the class's implementations."""
    return any(getattr(config, name, None) for name in EXPERTS)


@compiled()
def run(
    model: Any, *, batch: int, tokens: int, context: int, source: int = 0, new_source: int = 0, gives: bool = True
) -> tuple[dict[str, int], dict[str, int]]:
    """FLOPs of each module alone, and elements of each layer's cache, after `tokens` new tokens of `context`.

    `new_source` of `source` tokens are read in this step: all, or none. A class that does not return its cache
    (`gives`) fills one passed to it.
    """
    old = context - tokens

    def given(count: int) -> Any:
        return torch.zeros(batch, count, dtype=torch.long, device=model.device)

    takes = signature(type(model).forward).parameters
    keeps = next((name for name in ("cache_params", "state") if name in takes), "past_key_values")
    before: dict[str, Any] = {}
    if not gives and keeps in takes:
        before = {keeps: _empty_cache(model)}
    filled = before.get(keeps)
    for block in _recurrent(model).values():  # the class would make them hidden_size wide
        wide = block.lru_width
        block.conv1d_state = torch.zeros(batch, wide, block.conv1d_width - 1, device=model.device)
        block.rg_lru.recurrent_states = torch.zeros(batch, wide, device=model.device)
    reads, with_encoder = model.main_input_name, bool(source) and GIVEN not in takes
    if source:
        read = {reads: given(source)}
        if reads == "input_features":  # frames of audio, two for each position
            read = {reads: torch.zeros(batch, model.config.num_mel_bins, 2 * source, device=model.device)}
        if GIVEN in takes:
            read = {GIVEN: torch.zeros(batch, source, model.config.hidden_size, device=model.device)}
    if model.config.model_type == "t5gemma":  # it searches its tokens for padding, and they have no values on meta
        unmasked = dict.fromkeys(("full_attention", "sliding_attention"))
        masks = {"attention_mask": unmasked, "decoder_attention_mask": unmasked}
        before, read = {**before, **masks}, {**read, **masks}
    # its mask reads the cache length from the first layer, which may not cache keys
    if model.config.model_type == "minimax":
        before |= {"attention_mask": dict.fromkeys(("full_attention", "linear_attention"))}
    if model.config.model_type in MASKED:
        before |= {"attention_mask": torch.zeros(batch, 1, tokens, context, device=model.device)}
    if model.config.model_type in LENGTHS:
        visible = torch.ones(batch, tokens, device=model.device)
        before |= {"lengths": torch.full((batch,), tokens, device="cpu"), "attention_mask": visible}
    if source and new_source:
        before |= read
    if "input_features" in takes and "input_ids" not in takes and not source:
        return of_audio(model, batch, tokens), {}
    if reads == "input_values":
        return of_spectrogram(model, batch), {}
    if "grid_thw" in takes:
        return of_grid(model, batch, tokens), {}
    if "pixel_values" in takes and "input_ids" not in takes:
        return of_image(model, batch, tokens), {}
    if old:
        with as_on_meta(model.config):
            first = model(**(read if source else before), **_tokens(with_encoder, given(old)))
        before |= {keeps: first[keeps] if filled is None else filled}
        if with_encoder and not new_source:
            before |= {"encoder_outputs": BaseModelOutput(last_hidden_state=first.encoder_last_hidden_state)}
    with as_on_meta(model.config), ByModule(model) as counter:
        result = model(**before, **_tokens(with_encoder, given(tokens)))
    cached = _cached(
        result.get(keeps) if filled is None else filled, keys_first=model.config.model_type.startswith("zamba")
    )
    return dict(counter.by_module), {**cached, **_on_modules(model)}


def _tokens(with_encoder: bool, tokens: Any) -> dict[str, Any]:
    """The class's argument name for new tokens: with an encoder, the usual one is for the source."""
    return {"decoder_input_ids" if with_encoder else "input_ids": tokens}


def _cached(past: Any, *, keys_first: bool) -> dict[str, int]:
    """Cached elements of each layer: keys and values, or states, then those of the source."""
    if past is None:
        return {}
    if isinstance(past, list):
        return _stacked(past)
    linear = getattr(past, "linear_cache", ())  # MiniMax's, next to the layers
    sides = (getattr(past, "self_attention_cache", past), getattr(past, "cross_attention_cache", None))
    found: dict[str, int] = {}
    for first, cache in zip((0, 2), sides, strict=True):
        for number, layer in enumerate(cache.layers if cache is not None else ()):
            for which, tensor in enumerate(_cache_tensors(layer, keys_first), start=first):
                found[f"blocks.{number}.{which}"] = tensor.numel()
    return {**found, **{f"blocks.{number}.0": tensor.numel() for number, tensor in enumerate(linear) if len(tensor)}}


def _empty_cache(model: Any) -> Any:
    """A cache for a class to fill."""
    if model.config.model_type == "minimax":  # it supports only its own
        return import_module(type(model).__module__).MiniMaxCache()
    return transformers.DynamicCache(config=model.config)


def _recurrent(model: Any) -> dict[int, Any]:
    """RecurrentGemma's modules with their own states outside the cache, by layer number."""
    layers = getattr(model, "model", model).layers if model.config.model_type == "recurrent_gemma" else ()
    blocks = ((number, layer.temporal_block) for number, layer in enumerate(layers))
    return {number: block for number, block in blocks if hasattr(block, "rg_lru")}


def _on_modules(model: Any) -> dict[str, int]:
    """Elements of the states in those modules."""
    return {
        f"blocks.{number}.{which}": tensor.numel()
        for number, block in _recurrent(model).items()
        for which, tensor in enumerate((block.conv1d_state, block.rg_lru.recurrent_states))
    }


def _stacked(states: list[Any]) -> dict[str, int]:
    """Cached elements of each RWKV layer, from tensors over all layers: the last input of the channel mixing, that of
    the time mixing, and three tensors of the recurrence."""
    of_network, of_mixer, *sums = [state.select(-1, 0).numel() for state in states]
    counts = (of_mixer, sum(sums), of_network)
    layers = range(states[0].shape[-1])
    return {f"blocks.{number}.{which}": count for number in layers for which, count in enumerate(counts)}


def _compressed_by(layer: Any) -> list[Any]:
    """Cached tensors of a DeepSeek-V4 layer with compression: keys that are also values, compressed keys, waiting
    tokens with their weights, and the contributions to the next key; then those of an indexer."""
    found = [layer.keys]
    for name, keys in layer.compressed_kv.items():
        found += [keys, layer.buffer_kv[name], layer.buffer_gate[name]]
        if hasattr(layer, "overlap_kv"):
            shares = (layer.overlap_kv[name], layer.overlap_gate[name])
            found += [torch.empty(0) if tensor is None else tensor for tensor in shares]
    return found


def _cache_tensors(layer: Any, keys_first: bool) -> list[Any]:
    """Tensors in a layer of the class's cache: a mixer's states, keys and values, an indexer's keys. If attention runs
    before the mixer, its tensors come first."""
    if hasattr(layer, "compressed_kv"):
        return _compressed_by(layer)
    states = [*getattr(layer, "conv_states", {}).values(), *getattr(layer, "recurrent_states", {}).values()]
    keys = [getattr(layer, name, None) for name in ("keys", "values", "indexer_keys", "idx_keys")]
    both = (*keys, *states) if keys_first else (*states, *keys)
    return [tensor for tensor in both if tensor is not None and tensor.shape[-1]]  # some cache empty rotary keys


BY_HEAD = re.compile(r"_layernorm\.norms\.\d+\.")
"""A norm of one head in StableLM's class, which has one module per head."""


def parameters(model: Any) -> dict[str, int]:
    """Elements of each parameter by name; tied ones once, empty ones not at all. Norms of heads in separate modules are
    one."""
    found: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        found[BY_HEAD.sub("_layernorm.", name)] += parameter.numel()
    return {name: count for name, count in found.items() if count}
