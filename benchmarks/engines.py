"""Errors of `tfacct engine vllm` on published start-ups: python benchmarks/engines.py FOLDER

FOLDER holds start-ups.csv and aligned_blocks.csv, none of which is part of the project: what engines printed when they
started. A row is scored on each term that it has every input for (`can_score`). The exit code is 1 where a term is
further off than its limit, or an exception is no longer needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from tfacct.architecture.parts import Mixer
from tfacct.engines.launch import Flags, Launch, Seen
from tfacct.engines.profiles import engine
from tfacct.engines.units import GIB, MIB
from tfacct.loading import devices, presets, spellings
from tfacct.loading.find import find
from tfacct.loading.model import LoadedModel, load_model

Row = Mapping[str, str]
LIMITS = {"peak": 0.01, "weights": 0.015, "pool": 0.01, "tokens": 0.01, "layout": 0.001, "concurrency": 0.001}
"""Largest error: GiB of the peak and the weights, else a share."""
GIB_TERMS = ("peak", "weights")
P90 = 0.004
"""Largest error of tokens at p90, 0.12 to 0.19."""

SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
PIXTRAL = {
    "model_type": "pixtral", "hidden_size": 1024, "head_dim": 64, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 1540, "patch_size": 14, "num_channels": 3,
}  # fmt: skip
MISTRAL_SMALL = {
    "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
    "max_position_embeddings": 131072, "rope_theta": 1e9, "rms_norm_eps": 1e-5, "sliding_window": None,
    "tie_word_embeddings": False,
}  # fmt: skip
WHOLE: dict[str, dict[str, Any]] = {
    "mistral-small-3": {
        "model_type": "mistral3", "text_config": MISTRAL_SMALL, "vision_config": PIXTRAL, "spatial_merge_size": 2,
        "multimodal_projector_bias": False, "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Public configs of models with an image encoder, that are no presets, by the beginning of their name."""
FIELDS: dict[str, dict[str, Any]] = {
    "qwen2.5-72b": {"max_position_embeddings": 32768},
    "granite-3.3-8b": {"vocab_size": 49159},
}
"""Fields in which the served model differs from the preset: its own config.json."""
PRESETS = {"granite-3.3-8b": "granite-3.1-8b", "llama-3.2-11b-vision": "llama-3.2-11b-vision-text"}
"""Presets of the same shape, by the beginning of the served model's name."""
CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
QUANTIZED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fp8", CHANNELS),
    ("w8a8", {**CHANNELS, "type": "int"}),
    ("w4a16", {**CHANNELS, "type": "int", "num_bits": 4, "strategy": "group", "group_size": 128}),
)
"""Schemes of compressed-tensors, by a word in the served model's name."""


@cache
def model(name: str) -> LoadedModel:
    """The served model, by its hub id. Raises TfacctError."""
    plain = name.lower().rpartition("/")[2]
    plain = re.sub(r"^meta-", "", plain)
    scheme = next((how for word, how in QUANTIZED if word in plain), None)
    base = re.sub(r"-(instruct-)?(quantized\..*|fp8(-dynamic)?)$", "", plain)
    fields = next((own for start, own in FIELDS.items() if base.startswith(start)), {})
    if whole := next((config for start, config in WHOLE.items() if base.startswith(start)), None):
        return load_model(plain, {**whole, **_quantized(scheme)})
    if base.startswith("gemma-3-") and "-it" in base and not base.startswith(("gemma-3-1b", "gemma-3-270m")):
        text = find(f"{base.removesuffix('-it')}-text").raw
        return load_model(plain, {"model_type": "gemma3", "text_config": text, "vision_config": SIGLIP})
    known = presets.names()
    stem = re.sub(r"-(instruct|it|hf|chat)(-v0\.\d|-\d{4})?(-hf)?$", "", base)
    names = (name for start, name in PRESETS.items() if base.startswith(start))
    found = next(names, None) or next((one for one in (base, stem) if one in known), None)
    if found is None:
        known_as = spellings.preset(name)
        found = (
            known_as.name if known_as else min((one for one in known if one.startswith(stem)), key=len, default=name)
        )
    loaded = find(found, ask_hub=False)
    if not fields and scheme is None:
        return loaded
    return load_model(plain, {**loaded.raw, **fields, **_quantized(scheme)})


def _quantized(scheme: Mapping[str, Any] | None) -> dict[str, Any]:
    if scheme is None:
        return {}
    groups = {"group_0": {"targets": ["Linear"], "weights": dict(scheme)}}
    packed = "pack-quantized" if scheme["num_bits"] == 4 else "float-quantized"
    packed = "int-quantized" if scheme["type"] == "int" and scheme["num_bits"] == 8 else packed
    method = {"quant_method": "compressed-tensors", "format": packed, "config_groups": groups}
    return {"quantization_config": {**method, "ignore": ["lm_head", "re:.*vision.*", "re:.*multi_modal.*"]}}


def launch(row: Row) -> Launch:
    """The launch of a row. Raises TfacctError."""
    vllm, loaded = engine("vllm"), model(row["model"])
    version = row["version"].lstrip("~").partition("-")
    profile = vllm.profile((version[2] and f"0.{version[2].split('.')[-1]}") or version[0])
    named = row["device"] in devices.paths()
    given = {"float32": "fp32", "float16": "fp16"}.get(row["dtype"])
    if row["quant"] == "fp8" and not loaded.quantized:
        given = "fp8"
    flags = Flags(
        max_model_len=_number(row["max_model_len"]),
        max_num_batched_tokens=_number(row["batched_tokens"]),
        max_num_seqs=_number(row["max_seqs"]),
        gpu_memory_utilization=float(row["utilization"]) if row["utilization"] else None,
        dtype=given,
        kv_dtype=None if row["kv_dtype"] == "auto" else row["kv_dtype"],
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        enforce_eager=row["graphs"] in ("eager", "v0"),
        block_size=None if loaded.architecture.having(Mixer) else _number(row["block"]),
        total_memory=int(float(row["total_gib"]) * GIB) if row["total_gib"] else None,
    )
    seen = Seen(
        row["sampler"] or None,
        int(float(row["cublas_mib"]) * MIB) if row["cublas_mib"] else None,
        _number(row["encoder_items"]),
    )
    encoders = loaded.of_parts("parameters")[1:] if loaded.whole is not None else ()
    device = devices.load(row["device"]) if named else None
    return Launch(vllm, profile, loaded, device, flags, seen, encoders)


def _number(text: str) -> int | None:
    return int(text) if text else None
