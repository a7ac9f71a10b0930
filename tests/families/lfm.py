"""Test configs of the lfm lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, without


class Lfm2:
    TINY = {
        "model_type": "lfm2", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 97, "max_position_embeddings": 103,
        "block_multiple_of": 13, "block_ffn_dim_multiplier": 1.1, "conv_L_cache": 5, "conv_bias": True,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "of one token's convolution": {**TINY, "conv_bias": False, "conv_L_cache": 1},
        "of attention alone": {**TINY, "layer_types": None, "block_auto_adjust_ff_dim": False},
    }
    SILENT = {"conv_dim": 48, "conv_dim_out": 48, "block_dim": 48, "block_use_swiglu": True, "block_norm_eps": 1e-5}
    REQUIRED = {"num_hidden_layers": 3}


class Lfm2Moe:
    OWN = (
        "block_multiple_of",
        "block_ffn_dim_multiplier",
        "block_auto_adjust_ff_dim",
        "block_ff_dim",
        "full_attn_idxs",
    )
    TINY = {
        **without(Lfm2.TINY, *OWN), "model_type": "lfm2_moe", "moe_intermediate_size": 37, "num_experts": 7,
        "num_experts_per_tok": 4, "num_dense_layers": 1,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "num_dense_layers": 4}}  # dense layers only: the class weighs experts by sigmoids
    SILENT = {"routed_scaling_factor": 2.0, "use_expert_bias": True, "norm_topk_prob": False}
    REQUIRED = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1}


class Lfm3:
    CONV, FULL, SLIDING = KINDS = "conv", "full_attention", "sliding_attention"
    TINY = {
        **GROUPED, "model_type": "lfm3", "vocab_size": 211, "num_hidden_layers": 4, "head_dim": 20,
        "intermediate_size": 97, "max_position_embeddings": 103, "conv_L_cache": 5, "conv_bias": True,
        "attention_bias": True, "sliding_window": 7, "layer_types": [CONV, FULL, SLIDING, CONV], "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "without gates and norms": {**TINY, "use_attention_gate": False, "use_sandwich_norm": False}}
    REQUIRED = {"num_hidden_layers": 3}
