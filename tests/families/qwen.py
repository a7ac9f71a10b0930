"""Test configs of the qwen lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, PLAIN, without


class Qwen1:
    TINY = {
        "model_type": "qwen", "vocab_size": 433, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "kv_channels": 10, "intermediate_size": 2 * 83, "max_position_embeddings": 43, "no_bias": True,
        "rotary_pct": 0.8,
    }  # fmt: skip
    SILENT = {"bf16": True, "seq_length": 43, "use_logn_attn": True, "rotary_emb_base": 10000, "padded_vocab_size": 433}
    LOGITS = {"": {**TINY, "rotary_pct": 1.0}}  # as Qwen2's class turns a head
    RUN_BY = "Qwen2"


class Qwen2:
    TINY = {
        "model_type": "qwen2", "vocab_size": 73, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 10,
        "num_key_value_heads": 5, "head_dim": 6, "intermediate_size": 79, "max_position_embeddings": 47,
        "tie_word_embeddings": True,
    }  # fmt: skip
    VARIANTS = {
        "windowed": {
            **TINY, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1,
        },
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "untied": {**TINY, "tie_word_embeddings": False, "rope_theta": 1e6},
        "windowed": VARIANTS["windowed"],
    }
    REQUIRED = PLAIN


class Qwen2Moe:
    TINY = {
        **GROUPED, "model_type": "qwen2_moe", "vocab_size": 107, "num_hidden_layers": 4, "max_position_embeddings": 53,
        "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29, "num_experts": 7, "num_experts_per_tok": 4,
        "decoder_sparse_step": 2, "mlp_only_layers": [3], "use_sliding_window": True, "sliding_window": 5,
        "max_window_layers": 3,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
    REQUIRED = PLAIN


class Qwen3:
    TINY = {
        "model_type": "qwen3", "vocab_size": 79, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 14, "intermediate_size": 97, "max_position_embeddings": 43,
        "attention_bias": True,
    }  # fmt: skip
    VARIANTS = {
        "windows listed": {
            **TINY, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    }  # fmt: skip
    LOGITS = {"": TINY, **VARIANTS}
    REQUIRED = PLAIN


class Qwen3Moe:
    TINY = {
        **GROUPED, "model_type": "qwen3_moe", "vocab_size": 109, "num_hidden_layers": 3, "max_position_embeddings": 61,
        "moe_intermediate_size": 37, "num_experts": 7, "num_experts_per_tok": 4, "mlp_only_layers": [1],
        "attention_bias": True,
    }  # fmt: skip
    # The reference's routing is fixed.
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}}
    REQUIRED = PLAIN


class Qwen3Next:
    TINY = {
        **GROUPED, "model_type": "qwen3_next", "vocab_size": 107, "hidden_size": 44, "num_hidden_layers": 4,
        "head_dim": 32, "max_position_embeddings": 53, "moe_intermediate_size": 37,
        "shared_expert_intermediate_size": 29, "num_experts": 7, "num_experts_per_tok": 4, "mlp_only_layers": [1],
        "full_attention_interval": 3, "linear_conv_kernel_dim": 5, "linear_key_head_dim": 10,
        "linear_value_head_dim": 11, "linear_num_key_heads": 3, "linear_num_value_heads": 6,
    }  # fmt: skip
    # The reference's routing is fixed.
    LOGITS = {
        "of every expert": {**TINY, "num_experts_per_tok": 7},
        "of dense layers": {
            **TINY,
            "mlp_only_layers": [0, 1, 2, 3],
            "attention_bias": True,
            "linear_conv_kernel_dim": 1,
        },
    }
    BY_KEY_HEAD = True
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4}


class Qwen3_5:
    _EXPERTS = ("moe_intermediate_size", "shared_expert_intermediate_size", "num_experts", "num_experts_per_tok")
    TINY = {
        **without(Qwen3Next.TINY, *_EXPERTS, "mlp_only_layers"),
        "model_type": "qwen3_5_text", "attention_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "of one value head per key head": {**TINY, "linear_num_value_heads": 3}}
    SILENT = {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1}
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4}


class Qwen3_5Moe:
    _UNREAD = ("mlp_only_layers", "decoder_sparse_step", "intermediate_size")
    TINY = {**without(Qwen3Next.TINY, *_UNREAD), "model_type": "qwen3_5_moe_text"}
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
    SILENT = {"attn_output_gate": True, "mtp_num_hidden_layers": 1}
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4}


class MiMo(Qwen2):
    TINY = {**Qwen2.TINY, "model_type": "mimo", "vocab_size": 227}
    SILENT = {"num_nextn_predict_layers": 1, "attention_bias": True}
    RUN_BY = "Qwen2"


class MiMoV2Flash:
    TINY = {
        **GROUPED, "model_type": "mimo_v2_flash", "vocab_size": 179, "num_hidden_layers": 3, "num_attention_heads": 12,
        "head_dim": 30, "v_head_dim": 22, "max_position_embeddings": 83, "attention_bias": True,
        "moe_intermediate_size": 37, "n_routed_experts": 8, "num_experts_per_tok": 5, "sliding_window": 7,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "mlp_layer_types": ["dense"] * 3}}  # the class weighs experts by sigmoids


class Mellum:
    TURNED = {
        "full_attention": {"rope_type": "default", "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }
    TINY = {
        **GROUPED, "model_type": "mellum", "vocab_size": 431, "num_hidden_layers": 3, "max_position_embeddings": 113,
        "moe_intermediate_size": 37, "num_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse"], "attention_bias": True, "rope_parameters": TURNED,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
