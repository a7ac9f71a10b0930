"""Quantized models of the tests, and what their weights come to."""

from __future__ import annotations

from typing import Any

from tests.families import TINY
from tests.helpers.classes import causal
from tests.helpers.lazy import lazy
from tfacct import load

torch = lazy("torch")
# Sizes that fill no block: heads · head_dim (60) is not the width (72), and grouped heads
LLAMA = {
    **{**TINY["llama"], "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10},
    **{"intermediate_size": 136, "vocab_size": 96, "num_hidden_layers": 3, "tie_word_embeddings": False},
}
FIVE: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen2": {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True},
    "phi3": {**LLAMA, "model_type": "phi3", "num_attention_heads": 6, "head_dim": None, "pad_token_id": 0},
    "gemma2": {**LLAMA, "model_type": "gemma2", "tie_word_embeddings": True},
    "starcoder2": {**LLAMA, "model_type": "starcoder2", "use_bias": True},
}
for name, config in FIVE.items():
    config.pop("architectures", None)
    if name != "llama":
        del config["attention_bias"], config["mlp_bias"]
del FIVE["phi3"]["head_dim"], FIVE["starcoder2"]["head_dim"]


def weighed(config: dict[str, Any], quantization: dict[str, Any]) -> int:
    """Bytes of the weights with a quantization_config."""
    return int(load({**config, "quantization_config": quantization}).memory().models[0]["weights_bytes"])


def built(config: dict[str, Any]) -> torch.nn.Module:
    """The transformers class of a config, in bf16."""
    return causal(config).to(torch.bfloat16)


W4: dict[str, Any] = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 4, "symmetric": True}
FP8: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
STATIC: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
NVFP4: dict[str, Any] = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
MX: dict[str, Any] = {**NVFP4, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
TOKENS: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
SCHEMES: dict[str, tuple[str, dict[str, Any]]] = {
    "w4a16": ("pack-quantized", {"weights": W4}),
    "w4a16 asymmetric": ("pack-quantized", {"weights": {**W4, "symmetric": False}}),
    "w8a16": ("pack-quantized", {"weights": {**W4, "num_bits": 8}}),
    "w3 channel": ("pack-quantized", {"weights": {**W4, "num_bits": 3, "strategy": "channel", "group_size": None}}),
    "fp8 dynamic": ("float-quantized", {"weights": FP8, "input_activations": TOKENS}),
    "fp8 static": ("float-quantized", {"weights": STATIC, "input_activations": STATIC}),
    "fp8 block": ("float-quantized", {"weights": {**FP8, "strategy": "block", "block_structure": [8, 8]}}),
    "w8a8": ("int-quantized", {"weights": {**FP8, "type": "int"}, "input_activations": {**STATIC, "type": "int"}}),
    "w8a8 static, asymmetric activations": (  # a scale of 2 bytes and a zero point of 1 for each matrix
        "int-quantized",
        {"weights": {**FP8, "type": "int"}, "input_activations": {**STATIC, "type": "int", "symmetric": False}},
    ),
    "w8a8 asymmetric": (
        "int-quantized",
        {"weights": {**FP8, "type": "int", "symmetric": False}, "input_activations": {**TOKENS, "type": "int"}},
    ),
    "mxfp4": ("mxfp4-pack-quantized", {"weights": {**NVFP4, "strategy": "group", "group_size": 32}}),
    "nvfp4": ("nvfp4-pack-quantized", {"weights": NVFP4}),
    "nvfp4, scale dtype": ("nvfp4-pack-quantized", {"weights": {**NVFP4, "scale_dtype": "torch.float8_e4m3fn"}}),
    "mxfp4, scale dtype": ("mxfp4-pack-quantized", {"weights": MX}),
    "mxfp6 blocks": ("mxfp6-pack-quantized", {"weights": {**MX, "num_bits": 6}}),
    "mxfp8 blocks": ("mxfp8-quantized", {"weights": {**MX, "num_bits": 8}}),
    "nvfp4a4": ("nvfp4-pack-quantized", {"weights": NVFP4, "input_activations": {**NVFP4, "dynamic": "local"}}),
}
EVEN = {"hidden_size": 96, "head_dim": 16, "num_attention_heads": 4, "intermediate_size": 160}
"""Sizes that every block of 32 divides: compressed-tensors asks it of MXFP4 and NVFP4."""
MIXED: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
