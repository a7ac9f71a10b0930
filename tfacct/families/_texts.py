"""Language models inside models of several models that have a type of their own: whose family each one is."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Text(NamedTuple):
    """A language model with a type of its own that is another family's: that family, its class's sizes where they are
    left out, fields that its class does not read as that family does, and those that stand for the one `fixed` value
    that it has. `tied`: its class ties the head unless it is told otherwise. `shares`: its heads share the hidden size
    where their own is left out, whatever the family takes. `nulls`: what null means to its class and not to the
    family's, as `FamilyConfig.nulls` says it."""

    family: str
    sizes: Mapping[str, Any] = {}
    unread: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = {}
    tied: bool = False
    shares: bool = False
    nulls: Mapping[str, Any] = {}


_QWEN2_VL = {
    "vocab_size": 152064,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "max_window_layers": 80,
}
_QWEN3_VL = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 128000,
}
_QWEN3_VL_MOE = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 128000,
    "moe_intermediate_size": 1408,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
}
_GLM4V = {
    "vocab_size": 151552,
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}
_GLM4V_MOE = {
    "vocab_size": 151424,
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 65536,
    "attention_bias": True,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "first_k_dense_replace": 1,
}
_GLM_OCR = {
    "vocab_size": 59392,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
_QWEN2_5_OMNI = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
}
_QWEN3_OMNI = {
    "vocab_size": 3584,
    "hidden_size": 2048,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
}
_GRANITE_DOCLING = {
    "vocab_size": 133800,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "embedding_multiplier": 12.0,
    "logits_scaling": 4.0,
    "residual_multiplier": 0.263,
    "attention_multiplier": 0.015625,
}
_EMU3 = {
    "vocab_size": 184622,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 9216,
}
_PHI4_MULTIMODAL = {
    "vocab_size": 200064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
_UNTIED = {"tie_word_embeddings": False}
"""What a null means to a class that reads it as false."""
_NO_WINDOW = frozenset({"use_sliding_window", "layer_types"})
TEXTS: Mapping[str, Text] = {
    "emu3_text_model": Text("llama", _EMU3),
    "exaone4_5_text": Text("exaone4"),
    "gemma4_unified_text": Text(
        "gemma4_text",
        {"max_position_embeddings": 262144, "sliding_window": 1024},
        fixed={"hidden_size_per_layer_input": 0, "enable_moe_block": False},
        tied=True,
    ),
    "glm4v_moe_text": Text("glm4_moe", _GLM4V_MOE, fixed={"use_qk_norm": False}),
    "glm4v_text": Text(
        "glm4",
        _GLM4V,
        frozenset({"head_dim"}),
        {"attention_bias": True},
        nulls={"num_key_value_heads": "num_attention_heads", **_UNTIED},
    ),
    "glm_ocr_text": Text("glm4", _GLM_OCR, fixed={"attention_bias": False}, shares=True, nulls=_UNTIED),
    "granite4_vision_text": Text("granite"),
    "granite_docling_text": Text("granite", _GRANITE_DOCLING, tied=True),
    "hunyuan_vl_text": Text("hunyuan_v1_dense", tied=True),
    "minimax_m3": Text("minimax_m3_vl_text"),
    "paddleocr_vl_text": Text("ernie4_5", tied=True),
    "phi4_multimodal_text": Text("phi3", _PHI4_MULTIMODAL),
    "qwen2_5_omni_text": Text("qwen2", _QWEN2_5_OMNI),
    "qwen2_5_vl_text": Text("qwen2", _QWEN2_VL, frozenset({"head_dim"}), nulls=_UNTIED),
    "qwen2_vl_text": Text("qwen2", _QWEN2_VL, frozenset({"head_dim"}), nulls=_UNTIED),
    "qwen3_omni_moe_text": Text("qwen3_moe", _QWEN3_OMNI, _NO_WINDOW, nulls=_UNTIED),
    "qwen3_vl_moe_text": Text("qwen3_moe", _QWEN3_VL_MOE, _NO_WINDOW),
    "qwen3_vl_text": Text("qwen3", _QWEN3_VL, _NO_WINDOW, nulls=_UNTIED),
}
"""By the `model_type` of the language model."""
