"""Test configs of the minimax lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, Fields, without


class MiniMax:
    FULL, LINEAR = "full_attention", "linear_attention"
    TINY = {
        "model_type": "minimax", "vocab_size": 103, "hidden_size": 50, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 59,
        "num_local_experts": 7, "num_experts_per_tok": 4, "layer_types": [LINEAR, FULL, LINEAR], "block_size": 12,
    }  # fmt: skip
    # The reference's routing is fixed.
    LOGITS = {
        "of every expert": {
            **TINY, "num_experts_per_tok": 7, "linear_attn_alpha_factor": 1.5, "linear_attn_beta_factor": 0.5,
            "full_attn_alpha_factor": 0.75, "mlp_beta_factor": 1.25,
        },
    }  # fmt: skip
    REQUIRED = {}


def numbered(config: Fields) -> Fields:
    """MiniMax's fields, with the kinds of layers as numbers."""
    layers = range(config["num_hidden_layers"])
    kinds = config.get("layer_types") or [MiniMax.LINEAR if number % 2 else MiniMax.FULL for number in layers]
    return {**without(config, "layer_types"), "attn_type_list": [int(kind == MiniMax.FULL) for kind in kinds]}


class MiniMaxM1:
    TINY = {**numbered(MiniMax.TINY), "model_type": "minimax_m1"}
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7, "layernorm_mlp_alpha": 1.5}}
    RUN_BY = "MiniMax"
    REQUIRED = {"attn_type_list": [0, 1] * 16}


class MiniMaxText01(MiniMaxM1):
    TINY = {**MiniMaxM1.TINY, "model_type": "minimax_text_01"}
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}
    RUN_BY = "MiniMax"


class MiniMaxM2:
    TINY = {
        **GROUPED, "model_type": "minimax_m2", "vocab_size": 367, "head_dim": 20, "intermediate_size": 37,
        "max_position_embeddings": 107, "rotary_dim": 10, "num_local_experts": 7, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {}  # the class weighs experts by sigmoids


class MiniMaxM3VL:
    FULL, SPARSE = "full_attention", "minimax_m3_sparse"
    TINY = {
        "model_type": "minimax_m3_vl_text", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 20, "intermediate_size": 37,
        "dense_intermediate_size": 71, "shared_intermediate_size": 29, "max_position_embeddings": 103,
        "num_local_experts": 10, "num_experts_per_tok": 5, "layer_types": [FULL, SPARSE, SPARSE],
        "mlp_layer_types": ["dense", "sparse", "sparse"], "index_n_heads": 6, "index_head_dim": 14,
        "index_block_size": 5, "index_topk_blocks": 3, "rope_parameters": {"partial_rotary_factor": 0.4},
    }  # fmt: skip
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}
    LOGITS = {"": DENSE, "without a block of its own": {**DENSE, "index_local_blocks": 0, "index_n_heads": 4}}
    SILENT = {"routed_scaling_factor": 2.0, "swiglu_limit": 7.0, "use_qk_norm": True, "num_mtp_modules": 3}
    REQUIRED = {"num_hidden_layers": 2, "layer_types": [FULL, SPARSE], "mlp_layer_types": ["dense", "sparse"]}
