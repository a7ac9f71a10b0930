"""Test configs of the cohere lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED


class Cohere:
    TINY = {
        **GROUPED, "model_type": "cohere", "vocab_size": 271, "max_position_embeddings": 65, "attention_bias": True,
        "logit_scale": 0.3,
    }  # fmt: skip
    VARIANTS = {"normed": {**TINY, "use_qk_norm": True}}
    LOGITS = {"": TINY, **VARIANTS}


class Cohere2:
    TINY = {
        "model_type": "cohere2", "vocab_size": 277, "hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 67,
        "attention_bias": True, "logit_scale": 0.3, "sliding_window": 5, "sliding_window_pattern": 2,
    }  # fmt: skip


class Cohere2Moe:
    TINY = {
        "model_type": "cohere2_moe", "vocab_size": 509, "hidden_size": 60, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 14, "intermediate_size": 37,
        "max_position_embeddings": 67, "attention_bias": True, "logit_scale": 0.3, "sliding_window": 5,
        "sliding_window_pattern": 2, "first_k_dense_replace": 2, "prefix_dense_intermediate_size": 71,
        "prefix_dense_sliding_window_pattern": 2, "num_experts": 7, "num_experts_per_tok": 4, "num_shared_experts": 3,
        "shared_expert_combination_strategy": "sum",
    }  # fmt: skip
    EVERY = {**TINY, "num_experts_per_tok": 7}  # the reference's routing is fixed
    LOGITS = {
        "of every expert": EVERY,
        "with sigmoids and RMSNorm": {**EVERY, "expert_selection_fn": "sigmoid", "rms_norm_eps": 1e-3},
        "rotated in full layers": {**EVERY, "prefix_dense_sliding_window_pattern": 1, "num_shared_experts": 0},
    }


class CohereCompass:
    FULL, SLIDING = "full_attention", "sliding_attention"
    ANGLES = {"rope_type": "default", "rope_theta": 10000.0}
    BOTH = {FULL: ANGLES, SLIDING: ANGLES}
    TINY = {
        "model_type": "cohere_compass_text", "vocab_size": 277, "hidden_size": 60, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 67,
        "attention_bias": True, "logit_scale": 0.3, "sliding_window": 5, "layer_types": [FULL, SLIDING, SLIDING],
        "rope_parameters": {FULL: None, SLIDING: ANGLES},
    }  # fmt: skip
    LOGITS = {"": TINY, "all rotated": {**TINY, "rope_parameters": BOTH, "layer_types": None, "logit_scale": None}}
    REQUIRED = {"num_hidden_layers": 2, "rope_parameters": {FULL: ANGLES}}
