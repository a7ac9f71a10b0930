"""Test configs of the glm lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, Fields


class Glm:
    TINY = {
        **GROUPED, "model_type": "glm", "vocab_size": 317, "head_dim": 20, "max_position_embeddings": 91,
        "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "whole": {**TINY, "attention_bias": False, "partial_rotary_factor": 1.0}}


class Glm4(Glm):
    TINY = {**Glm.TINY, "model_type": "glm4", "vocab_size": 331}


class Glm4Moe:
    TINY = {
        **GROUPED, "model_type": "glm4_moe", "vocab_size": 359, "num_hidden_layers": 3, "head_dim": 20,
        "max_position_embeddings": 103, "attention_bias": True, "use_qk_norm": True, "moe_intermediate_size": 37,
        "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {"num_hidden_layers": 2, "head_dim": 128}  # 4,096 / 96 is no whole number


class SolarOpen:
    TINY = {
        "model_type": "solar_open", "vocab_size": 389, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 117,
        "attention_bias": True, "moe_intermediate_size": 37, "n_routed_experts": 7, "n_shared_experts": 2,
        "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS: dict[str, Fields] = {}  # the class weighs experts by sigmoids
