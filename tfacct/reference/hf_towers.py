"""Inputs of transformers' image and audio encoders, and FLOPs of each of their modules."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from tfacct.reference.counting import ByModule

CLASSED = {
    **dict.fromkeys(("vit", "vit_msn", "clip_vision_model", "internvl_vision", "llama4_vision_model", "dinov2"), 1),
    **dict.fromkeys(("chinese_clip_vision_model", "altclip_vision_model", "metaclip_2_vision_model"), 1),
    **{"beit": 1, "data2vec-vision": 1, "deit": 2, "dinov2_with_registers": 1, "dinov3_vit": 1},
}
"""Types whose class adds tokens to the patches, and how many."""
MASK = "create_bidirectional_mask"
"""Function of a class's module that reads what to mask, which is not possible on meta."""


def of_image(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """FLOPs of each module alone for an image, one row of patches, with this number of tokens."""
    config = model.config
    if config.model_type == "gemma4_vision":
        return _of_placed(model, batch, tokens)
    first = CLASSED.get(config.model_type, 0) + getattr(config, "num_register_tokens", 0)
    patch = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
    sides = patch, patch * (tokens - first)
    image = torch.zeros(batch, config.num_channels, *sides, device=model.device)
    given: dict[str, Any] = {"pixel_values": image}
    if "interpolate_pos_encoding" in signature(type(model).forward).parameters:
        given["interpolate_pos_encoding"] = True
    if config.model_type == "siglip2_vision_model":  # it gets patches, and the sides of the image
        patches = torch.zeros(batch, tokens, config.num_channels * config.patch_size**2, device=model.device)
        shapes = torch.tensor([[1, tokens]] * batch, device="cpu")
        given = {"pixel_values": patches, "pixel_attention_mask": None, "spatial_shapes": shapes}
    with _unmasked(model), ByModule(model) as counter:
        model(**given)
    return dict(counter.by_module)


def _of_placed(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """The same for Gemma 4's class, which gets patches and their positions. On meta it can neither skip padding rows
    nor read what to mask."""
    pool = model.pooler.forward
    model.pooler.forward = lambda *given, **named: (pool(*given, **named)[0], slice(None))
    with torch.device(model.device):
        patches = torch.zeros(batch, tokens, 3 * model.config.patch_size**2)
        places = torch.zeros(batch, tokens, 2, dtype=torch.long)
    with _without_mask(import_module(type(model).__module__)), ByModule(model) as counter:
        model(pixel_values=patches, pixel_position_ids=places)
    return dict(counter.by_module)


def of_audio(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """FLOPs of each module alone for audio frames, two per position."""
    frames = torch.zeros(batch, model.config.num_mel_bins, 2 * tokens, device=model.device)
    if model.config.model_type == "qwen2_5_omni_audio_encoder":
        return _of_chunks(model, batch, tokens)
    heard = {"input_features_mask": frames[:, 0]} if model.config.model_type == "audioflamingo3_encoder" else {}
    with _unmasked(model), ByModule(model) as counter:
        model(frames, **heard)
    return dict(counter.by_module)


def of_spectrogram(model: Any, batch: int) -> dict[str, int]:
    """The same for a spectrogram, of the single length that AST's class supports."""
    sides = model.config.max_length, model.config.num_mel_bins
    with ByModule(model) as counter:
        model(input_values=torch.zeros(batch, *sides, device=model.device))
    return dict(counter.by_module)


def _of_chunks(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """The same for Qwen2.5-Omni's class, with chunked frames, because it cannot read lengths on meta."""
    each = model.config.n_window
    chunks = batch * tokens // each
    with torch.device(model.device):
        frames = torch.zeros(chunks, model.config.num_mel_bins, 2 * each)
        lengths = torch.full((chunks,), 2 * each)
        rows = torch.zeros(batch * tokens, dtype=torch.long), torch.zeros(batch * tokens // 2, dtype=torch.long)
    ends = torch.arange(chunks + 1, dtype=torch.int32) * each
    given = {"padded_feature": frames, "chunk_lengths": lengths, "valid_indices": rows[0], "pool_indices": rows[1]}
    with ByModule(model) as counter:
        model(frames, feature_lens=lengths, cu_seqlens=ends, **given)
    return dict(counter.by_module)


def of_grid(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """FLOPs of each module alone for images given as patches, one row of tiles each."""
    config = model.config
    if config.model_type == "kimi_k25_vision":
        return _of_raw_patches(model, batch, tokens)
    high = config.spatial_merge_size
    window = getattr(config, "window_size", 0) // high // config.patch_size * high
    high = window if window and tokens % window**2 == 0 else high
    high = high if tokens % high == 0 else 1  # the encoder itself merges none
    sides = torch.tensor([[1, high, tokens // high]] * batch)
    count = batch * tokens
    channels = config.num_channels if hasattr(config, "num_channels") else config.in_channels
    numbers = channels * getattr(config, "temporal_patch_size", 1) * config.patch_size**2
    reads = "pixel_values" if "pixel_values" in signature(type(model).forward).parameters else "hidden_states"
    axes = 3 if getattr(model, "include_temporal", False) else 2
    with torch.device(model.device):  # what the class would compute from the sides
        given = {reads: torch.zeros(count, numbers), "position_ids": torch.zeros(count, axes, dtype=torch.long)}
        given |= {"interp_indices": torch.zeros(count, 4, dtype=torch.long), "interp_weights": torch.zeros(count, 4)}
    table = getattr(model, "embeddings", None)
    # GLM-4.1V's resamples an embedding by the sides, which are not on meta
    if table is not None and hasattr(table, "interpolated_method"):
        table.forward = _unmoved
    with ByModule(model) as counter:
        model(**given, grid_thw=sides)
    return dict(counter.by_module)


def _of_raw_patches(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """The same for Kimi-K2.5's class, which gets patches as images with channels."""
    high, wide = model.config.merge_kernel_size
    high = high if tokens % (high * wide) == 0 else 1
    sides, count, side = torch.tensor([[1, high, tokens // high]] * batch), batch * tokens, model.config.patch_size
    model.patch_embed.pos_emb.forward = _unmoved
    model.merge_kernel_size = (1, 1)  # it determines how rows are gathered, without a matmul
    with torch.device(model.device):
        patches, places = torch.zeros(count, 3, side, side), torch.zeros(count, 2, dtype=torch.long)
    with ByModule(model) as counter:
        model(patches, grid_thw=sides, position_ids=places)
    return dict(counter.by_module)


def _unmoved(rows: Any, *_: object, **__: object) -> Any:
    """Skips the addition of positions, which has no matmul."""
    return rows


def _unmasked(model: Any) -> AbstractContextManager[object]:
    """Encoders of Idefics3, SmolVLM and Audio Flamingo 3 read what to mask, which is not possible on meta: they get no
    mask."""
    module = import_module(type(model).__module__)
    takes = {"patch_attention_mask", "input_features_mask"} & {*signature(type(model).forward).parameters}
    return _without_mask(module) if takes and hasattr(module, MASK) else nullcontext()


def _without_mask(module: ModuleType) -> AbstractContextManager[object]:
    return patch.object(module, MASK, lambda **_: None)
