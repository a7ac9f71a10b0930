"""Test configs of the olmo lineage: a small one of each family, and variants."""

from tests.families._configs import FULL, GROUPED, LINEAR, PLAIN


class Olmo:
    TINY = {
        **GROUPED, "model_type": "olmo", "vocab_size": 257, "max_position_embeddings": 59, "attention_bias": True,
        "clip_qkv": 0.7,
    }  # fmt: skip
    LOGITS = {"": TINY, "unbounded": {**TINY, "clip_qkv": None, "attention_bias": False}}


class Olmo2:
    TINY = {**GROUPED, "model_type": "olmo2", "vocab_size": 179, "max_position_embeddings": 33, "attention_bias": True}
    REQUIRED = PLAIN


class Olmo3:
    TINY = {
        **GROUPED, "model_type": "olmo3", "vocab_size": 241, "max_position_embeddings": 55, "sliding_window": 5,
        "attention_bias": True, "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    STRETCHED = {"rope_type": "linear", "factor": 8.0}
    LOGITS = {"": TINY, "stretched": {**TINY, "rope_theta": 700.0, "rope_scaling": STRETCHED}}
    REQUIRED = PLAIN


class Olmoe:
    TINY = {
        "model_type": "olmoe", "vocab_size": 263, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 37, "max_position_embeddings": 61,
        "attention_bias": True, "clip_qkv": 0.7, "num_experts": 7, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {
        "of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}
    }  # the reference's routing is fixed


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


class FlexOlmo:
    TINY = {
        **GROUPED, "model_type": "flex_olmo", "vocab_size": 383, "intermediate_size": 37,
        "max_position_embeddings": 115, "attention_bias": True, "num_experts": 7, "num_experts_per_tok": 4,
        "pad_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    LOGITS = {
        "of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}
    }  # the reference's routing is fixed
