"""Test configs of the deepseek lineage: a small one of each family, and variants."""

from tests.families._configs import FULL, LAYERS, LINEAR, SIZES, in_forms, latent_forms, without
from tests.families.mistral import Ministral3


class DeepseekV2:
    TINY = {
        "model_type": "deepseek_v2", "vocab_size": 139, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 65, "moe_intermediate_size": 37,
        "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
        "q_lora_rank": None, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "n_group": 1, "topk_group": 1, "attention_bias": True, "mlp_bias": True, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = {
        "absorbed": {**TINY, "q_lora_rank": 22, "latent_attention": "absorbed"},
        "unpacked": {**TINY, "latent_attention": "unpacked"},
    }
    # The reference's routing is fixed: dense layers only, or every expert for every token.
    LOGITS = {
        **latent_forms(TINY),
        "of every expert": {**TINY, "num_experts_per_tok": 7, "latent_attention": "absorbed"},
    }
    REQUIRED = {**LAYERS, "num_attention_heads": 4, "num_experts_per_tok": 3}


class DeepseekV3:
    TINY = {
        "model_type": "deepseek_v3", "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
        "moe_intermediate_size": 37, "n_routed_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 10, "n_group": 3, "topk_group": 2, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(TINY)  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {**LAYERS, "num_attention_heads": 128}


class DeepseekV32:
    TINY = {
        **DeepseekV3.TINY, "model_type": "deepseek_v32", "vocab_size": 157, "index_topk": 5, "index_n_heads": 19,
        "index_head_dim": 16, "n_routed_experts": 21, "qk_rope_head_dim": 4,
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    # Dense layers only: the class weighs experts by sigmoids.
    LOGITS = in_forms({**TINY, "first_k_dense_replace": 3}, "expanded", "absorbed", "unpacked")


class KimiK2(DeepseekV3):
    TINY = {**DeepseekV3.TINY, "model_type": "kimi_k2", "vocab_size": 233, "n_group": 1, "topk_group": 1}
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids


class KimiLinear:
    TINY = {
        "model_type": "kimi_linear", "pad_token_id": 0, "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
        "moe_intermediate_size": 37, "num_local_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 7,
        "first_k_dense_replace": 1, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "n_group": 3, "topk_group": 2, "latent_attention": "expanded", "linear_conv_kernel_dim": 5,
        "linear_head_dim": 12, "linear_num_heads": 3, "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
    }  # fmt: skip
    LOGITS = {"of dense layers": {**TINY, "first_k_dense_replace": 4}}  # the class weighs experts by sigmoids
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 6, "pad_token_id": 0}


class Youtu:
    TINY = {
        **SIZES, "model_type": "youtu", "vocab_size": 229, "num_hidden_layers": 3, "num_key_value_heads": 6,
        "max_position_embeddings": 51, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 10, "attention_bias": True, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(TINY, {})


class AXK2:
    TINY = {
        **DeepseekV32.TINY, "model_type": "axk2", "vocab_size": 541, "gated_norm_rank": 25, "first_k_dense_replace": 0,
        "mlp_layer_types": ["dense", "sparse", "dense"],
    }  # fmt: skip
    # Dense layers only: the class weighs experts by sigmoids.
    LOGITS = in_forms({**TINY, "mlp_layer_types": ["dense"] * 3}, "expanded", "absorbed")


class Dots1:
    TINY = {
        "model_type": "dots1", "vocab_size": 167, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53, "attention_bias": True,
        "moe_intermediate_size": 37, "n_routed_experts": 10, "n_shared_experts": 3, "num_experts_per_tok": 4,
        "first_k_dense_replace": 1, "sliding_window": 5, "max_window_layers": 2,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {"num_hidden_layers": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}


class Dots3Note:
    INDEXED, SLIDING = "indexed_attention", "sliding_attention"
    TINY = {
        **without(DeepseekV32.TINY, "first_k_dense_replace"), "model_type": "dots3_note_text", "vocab_size": 547,
        "pad_token_id": 0,
        "shared_experts_intermediate_size": 43, "layer_types": [INDEXED, SLIDING, SLIDING], "sliding_window": 8,
        "mlp_layer_types": ["dense", "sparse", "dense"], "swa_num_attention_heads": 7, "swa_num_key_value_heads": 7,
        "swa_q_lora_rank": 26, "swa_kv_lora_rank": 17, "swa_head_dim": 39, "swa_qk_nope_head_dim": 29,
        "swa_v_head_dim": 24,
    }  # fmt: skip
    VARIANTS = {
        "windowed, absorbed": {**TINY, "latent_attention": "absorbed"},
        "unpacked": {**TINY, "latent_attention": "unpacked"},
    }
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
    LOGITS = {"": DENSE, "absorbed": {**DENSE, "latent_attention": "absorbed", "use_dsa": False}}
    SILENT = {"norm_topk_prob": False}


class Mistral4:
    GROWING = {**Ministral3.GROWING, "rope_type": "linear", "factor": 4.0}
    """The class turns a part of a head only where its angles are stretched."""
    TINY = {
        **DeepseekV3.TINY,
        "model_type": "mistral4",
        "vocab_size": 419,
        "pad_token_id": 0,
        "rope_parameters": GROWING,
    }
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(TINY)


class LongcatFlash:
    TINY = {
        "model_type": "longcat_flash", "vocab_size": 153, "hidden_size": 48, "num_layers": 2, "num_attention_heads": 6,
        "ffn_hidden_size": 71, "max_position_embeddings": 67, "q_lora_rank": 22, "kv_lora_rank": 14,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "head_dim": 4, "v_head_dim": 10, "n_routed_experts": 15,
        "moe_topk": 7, "expert_ffn_hidden_size": 37, "zero_expert_num": 0, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = {"with choices that are no experts": {**TINY, "zero_expert_num": 4}}
    LOGITS = {"of all experts": {**TINY, "moe_topk": 15, "routed_scaling_factor": 1.0}}
    REQUIRED = {
        "vocab_size": 37, "hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "q_lora_rank": 16,
        "intermediate_size": 40, "moe_intermediate_size": 8, "n_routed_experts": 12, "zero_expert_num": 0,
    }  # fmt: skip
    SILENT = {"routed_scaling_factor": 3.0, "num_hidden_layers": 4, "qk_head_dim": 12}


class Glm4MoeLite:
    TINY = {
        **without(DeepseekV3.TINY, "first_k_dense_replace"), "model_type": "glm4_moe_lite", "vocab_size": 151,
        "mlp_layer_types": ["dense", "sparse", "dense"],
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = {
        form: {**without(fields, "first_k_dense_replace"), "mlp_layer_types": ["dense"] * 3}
        for form, fields in latent_forms(TINY).items()
    }  # dense layers only: the class weighs experts by sigmoids


class AXK1:
    TINY = {**Glm4MoeLite.TINY, "model_type": "axk1", "vocab_size": 557, "q_lora_rank": 22}
    LOGITS = {
        "of dense layers": {**TINY, "mlp_layer_types": ["dense"] * 3}
    }  # dense layers only: the class weighs experts by sigmoids


class GlmMoeDsa(DeepseekV32):
    TINY = {
        **DeepseekV32.TINY,
        "model_type": "glm_moe_dsa",
        "vocab_size": 161,
        "indexer_types": ["full", "shared", "full"],
    }
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids


class MistralLarge4:
    UNREAD = ("q_lora_rank", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
    TINY = {
        **without(GlmMoeDsa.TINY, *UNREAD), "model_type": "mistral_large4_text", "vocab_size": 163,
        "num_hidden_layers": 5, "indexer_types": ["full", "shared", "full", "shared", "full"], "n_shared_experts": 2,
        "no_rope_layers": [1, 0, 1, 0, 1], "kv_source_layers": [0, 1, 0, 1, 4], "first_k_dense_replace": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    DENSE = {**TINY, "first_k_dense_replace": 5}
    LOGITS = in_forms(DENSE, "expanded", "absorbed", "unpacked")
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 2}


class Glm5Next:
    INDEXED = "indexed_attention"
    TINY = {
        **SIZES, "model_type": "glm5_next_text", "pad_token_id": 0, "vocab_size": 149, "num_hidden_layers": 4,
        "num_key_value_heads": 6, "max_position_embeddings": 67, "moe_intermediate_size": 37, "n_routed_experts": 15,
        "n_shared_experts": 2, "num_experts_per_tok": 7, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
        "v_head_dim": 10, "index_topk": 8, "index_kpool": 4, "index_n_heads": 19, "index_head_dim": 16, "hc_mult": 13,
        "hc_sinkhorn_iters": 3, "latent_attention": "expanded", "linear_conv_kernel_dim": 5, "linear_head_dim": 12,
        "linear_num_heads": 4, "indexer_types": ["full", "shared", "full", "full"],
        "layer_types": [INDEXED, INDEXED, LINEAR, INDEXED], "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    }  # fmt: skip
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 4}  # the class weighs experts by sigmoids
    LOGITS = {"": DENSE, "absorbed": {**DENSE, "latent_attention": "absorbed", "indexer_types": ["full"] * 4}}
    SILENT = {"swiglu_limit": 7.0, "num_nextn_predict_layers": 1, "mhc": True}
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0}
