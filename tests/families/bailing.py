"""Test configs of the bailing lineage: a small one of each family, and variants."""

from tests.families._configs import Fields, without
from tests.families.deepseek import KimiLinear
from tests.families.glm import Glm4Moe

NAMES = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"}


def spelled(config: Fields) -> Fields:
    """The fields of GLM-4.5 as Ling's files spell them."""
    return {NAMES.get(name, name): value for name, value in config.items()}


class BailingMoeV2:
    TINY = {**spelled(Glm4Moe.TINY), "model_type": "bailing_moe", "vocab_size": 353, "partial_rotary_factor": 0.5}
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
    SILENT = {"moe_shared_expert_intermediate_size": TINY["moe_intermediate_size"], "use_rmsnorm": True}
    RUN_BY = "Glm4Moe"


class BailingMoeLinearV2:
    TINY = {
        "model_type": "bailing_moe_linear", "vocab_size": 103, "hidden_size": 50, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 37,
        "max_position_embeddings": 59, "layer_group_size": 1, "group_norm_size": 3, "moe_intermediate_size": 19,
        "num_experts": 7, "num_experts_per_tok": 4, "num_shared_experts": 2,
    }  # fmt: skip
    LIGHTNING = {**TINY, "layer_group_size": 3}
    VARIANTS = {
        "with lightning attention": LIGHTNING,
        "with biases": {
            **LIGHTNING,
            "use_qkv_bias": True,
            "use_bias": True,
            "use_qk_norm": False,
            "tie_word_embeddings": True,
        },
    }
    LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}  # the class weighs experts by sigmoids
    RUN_BY = "Glm4Moe"
    REQUIRED = {"num_hidden_layers": 2, "layer_group_size": 1}  # every size has a default
    SILENT = {"score_function": "sigmoid", "router_dtype": "fp32", "num_nextn_predict_layers": 1}


class BailingMoeV2_5(BailingMoeLinearV2):
    TINY = {
        **BailingMoeLinearV2.TINY, "model_type": "bailing_moe_v2_5", "kv_lora_rank": 14, "q_lora_rank": 22,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "n_group": 1, "topk_group": 1, "latent_attention": "expanded",
    }  # fmt: skip
    LIGHTNING = {**TINY, "layer_group_size": 3}
    VARIANTS = {
        "with lightning attention": LIGHTNING,
        "queries without a latent": {**LIGHTNING, "q_lora_rank": None, "use_qkv_bias": True},
    }
    LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}
    RUN_BY = "DeepseekV3"


class BailingHybrid:
    OWN = ("linear_conv_kernel_dim", "linear_head_dim", "linear_num_heads")
    TINY = {
        **without(KimiLinear.TINY, *OWN),
        "model_type": "bailing_hybrid", "vocab_size": 151, "head_dim": 13, "short_conv_kernel_size": 5,
    }  # fmt: skip
    DENSE = {**TINY, "first_k_dense_replace": 4}  # the class weighs experts by sigmoids
    LOGITS = {"of dense layers": DENSE, "of decays without a bound": {**DENSE, "kda_safe_gate": False}}
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 6, "pad_token_id": 0}
    SILENT = {"mtp_loss_scaling_factor": 0.3}
