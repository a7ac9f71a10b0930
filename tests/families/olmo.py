"""Test configs of the olmo lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._deltas import FULL, LINEAR, deltas
from tests.families._drawing import ON, PLAIN, WINDOW, Draw, Fields, experts, layer_types, llama_like, some


class Olmo:
    TINY = {
        "model_type": "olmo", "vocab_size": 257, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 59,
        "attention_bias": True, "clip_qkv": 0.7,
    }  # fmt: skip
    LOGITS = {"": TINY, "unbounded": {**TINY, "clip_qkv": None, "attention_bias": False}}

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), attention_bias=ON, clip_qkv=st.none() | st.just(8.0))


class Olmo2:
    TINY = {
        "model_type": "olmo2", "vocab_size": 179, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 33,
        "attention_bias": True,
    }  # fmt: skip
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), attention_bias=ON)


class Olmo3:
    TINY = {
        "model_type": "olmo3", "vocab_size": 241, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 55,
        "sliding_window": 5, "attention_bias": True, "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    STRETCHED = {"rope_type": "linear", "factor": 8.0}
    LOGITS = {"": TINY, "stretched": {**TINY, "rope_theta": 700.0, "rope_scaling": STRETCHED}}
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        fields = layer_types(draw, llama_like(draw) | {"sliding_window": draw(WINDOW)})
        return some(draw, fields, attention_bias=ON)


class Olmoe:
    TINY = {
        "model_type": "olmoe", "vocab_size": 263, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 37, "max_position_embeddings": 61,
        "attention_bias": True, "clip_qkv": 0.7, "num_experts": 7, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {
        "of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}
    }  # the reference's routing is fixed

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, head_dim=False) | experts(draw, "num_experts")
        return some(draw, fields, attention_bias=ON, clip_qkv=st.none() | st.just(8.0))


class OlmoHybrid:
    TINY = {
        "model_type": "olmo_hybrid", "pad_token_id": 0, "vocab_size": 107, "hidden_size": 60, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53,
        "attention_bias": True, "linear_conv_kernel_dim": 5, "linear_key_head_dim": 13, "linear_value_head_dim": 11,
        "linear_num_key_heads": 3, "linear_num_value_heads": 12, "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "unrotated": {**TINY, "rope_parameters": {"rope_type": "default", "rope_theta": None}},
        "of positive eigenvalues": {**TINY, "linear_allow_neg_eigval": False, "linear_value_head_dim": None},
    }
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0}

    def drawn(draw: Draw) -> Fields:
        fields = {**llama_like(draw, head_dim=False), "num_hidden_layers": (layers := draw(st.integers(2, 5)))}
        kinds = [
            LINEAR,
            FULL,
            *draw(st.lists(st.sampled_from([LINEAR, FULL]), min_size=layers - 2, max_size=layers - 2)),
        ]
        fields |= {"layer_types": draw(st.permutations(kinds)), "pad_token_id": 0}
        return some(draw, fields | deltas(draw), attention_bias=ON, linear_allow_neg_eigval=ON)


class FlexOlmo:
    TINY = {
        "model_type": "flex_olmo", "vocab_size": 383, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
        "max_position_embeddings": 115, "attention_bias": True, "num_experts": 7, "num_experts_per_tok": 4,
        "pad_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    LOGITS = {
        "of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}
    }  # the reference's routing is fixed

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw) | experts(draw, "num_experts") | {"pad_token_id": 0}
        return some(draw, fields, attention_bias=ON)
