"""Test configs of the moe lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, Fields


class Afmoe:
    TINY = {
        **GROUPED, "model_type": "afmoe", "vocab_size": 163, "num_hidden_layers": 4, "max_position_embeddings": 79,
        "attention_bias": True, "moe_intermediate_size": 37, "num_experts": 8, "num_experts_per_tok": 4,
        "num_shared_experts": 3, "num_dense_layers": 1, "sliding_window": 5, "global_attn_every_n_layers": 3,
        "mup_enabled": True,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "num_dense_layers": 4}}  # dense layers only: the class weighs experts by sigmoids


class Laguna:
    FULL, SLIDING = "full_attention", "sliding_attention"
    TINY = {
        "model_type": "laguna", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 71,
        "max_position_embeddings": 83, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29,
        "num_experts": 16, "num_experts_per_tok": 4, "sliding_window": 7, "attention_bias": True,
        "rope_parameters": {FULL: {"partial_rotary_factor": 0.5, "rope_theta": 5e5, "rope_type": "default"},
        SLIDING: {"partial_rotary_factor": 0.75, "rope_theta": 1e4, "rope_type": "default"}},
        "layer_types": [FULL, SLIDING, SLIDING], "num_attention_heads_per_layer": [6, 10, 10],
    }  # fmt: skip
    VARIANTS = {"a gate for each element": {**TINY, "gating": "per-element"}}
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
    LOGITS = {"": DENSE, "gated by elements": {**DENSE, "gating": "per-element"}}


class Step3p5:
    FULL, SLIDING = "full_attention", "sliding_attention"
    TINY = {
        "model_type": "step3p5", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 4, "pad_token_id": 0,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 71,
        "max_position_embeddings": 83, "moe_intermediate_size": 37, "share_expert_dim": 29, "n_routed_experts": 16,
        "num_experts_per_tok": 4, "sliding_window": 7, "attention_bias": True, "mlp_bias": True,
        "layer_types": [FULL, SLIDING, SLIDING, FULL], "num_sliding_attention_heads": 10,
        "rope_parameters": {
            FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
            SLIDING: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
        },
        "moe_layers_enum": "1,2,3",
    }  # fmt: skip
    DENSE = {**TINY, "moe_layers_enum": ""}  # the class weighs experts by sigmoids
    LISTED = {"rope_parameters": None, "rope_theta": [5e5, 1e4, 1e4, 5e5], "partial_rotary_factors": [0.5, 1, 1, 0.5]}
    LOGITS = {"": DENSE, "with a list of angles": {**DENSE, **LISTED}}
    REQUIRED = {"num_hidden_layers": 4, "sliding_window": 7}  # the class makes its mask even where no layer has it


class Kolibri1:
    TINY = {
        "model_type": "kolibri1", "vocab_size": 167, "hidden_size": 48, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 89,
        "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29, "num_experts": 8, "num_experts_per_tok": 4,
        "sliding_window": 7,
    }  # fmt: skip
    LOGITS: dict[str, Fields] = {}  # the class weighs experts by sigmoids, and has no dense layers


class Flint:
    TINY = {
        **GROUPED, "model_type": "flint", "vocab_size": 149, "num_hidden_layers": 4, "max_position_embeddings": 83,
        "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29, "num_experts": 8, "num_experts_per_tok": 4,
        "sliding_window": 7, "attention_bias": True, "mlp_only_layers": [0],
    }  # fmt: skip
    LOGITS = {"": {**TINY, "mlp_only_layers": [0, 1, 2, 3]}}  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {"num_hidden_layers": 4}


class Grok1:
    TINY = {
        "model_type": "grok-1", "vocab_size": 443, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 37, "num_experts": 5, "num_experts_per_tok": 4,
        "max_position_embeddings": 41, "attn_output_multiplier": 0.3, "max_attn_value": 30.0,
        "embedding_multiplier_scale": 7.7, "output_multiplier_scale": 0.6,
    }  # fmt: skip
    LOGITS = {}
    VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False}}
    SILENT = {"router_aux_loss_coef": 0.001}


class Dbrx:
    TINY = {
        "model_type": "dbrx", "vocab_size": 499, "d_model": 60, "n_layers": 2, "n_heads": 6, "max_seq_len": 71,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 10_000.0},
        "ffn_config": {"ffn_hidden_size": 37, "moe_num_experts": 7, "moe_top_k": 4},
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "ffn_config": {**TINY["ffn_config"], "moe_top_k": 7}}}
    ASKED = {"rope_theta": 500_000.0, "clip_qkv": 8}
    """Fields for which the class has no default, and without which it does not run."""
    REQUIRED = {"n_layers": 2, "attn_config": ASKED}
    SILENT = {"attn_config": {**TINY["attn_config"], "attn_pdrop": 0.3}}
