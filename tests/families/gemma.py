"""Test configs of the gemma lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, PLAIN


class Gemma:
    TINY = {
        **GROUPED, "model_type": "gemma", "vocab_size": 67, "hidden_size": 30, "head_dim": 8, "intermediate_size": 101,
        "max_position_embeddings": 51, "attention_bias": True, "hidden_act": "gelu",
    }  # fmt: skip
    REQUIRED = PLAIN


class Gemma2:
    TINY = {
        **GROUPED, "model_type": "gemma2", "vocab_size": 113, "num_hidden_layers": 3, "max_position_embeddings": 57,
        "sliding_window": 5, "query_pre_attn_scalar": 12,
    }  # fmt: skip
    LOGITS = {"": TINY, "unbounded": {**TINY, "attn_logit_softcapping": None, "final_logit_softcapping": None}}
    REQUIRED = PLAIN


class Gemma3Text:
    TINY = {
        **GROUPED, "model_type": "gemma3_text", "vocab_size": 127, "num_hidden_layers": 4,
        "max_position_embeddings": 63, "sliding_window": 5, "sliding_window_pattern": 3, "query_pre_attn_scalar": 14,
    }  # fmt: skip
    LOGITS = {"": TINY, "both ways": {**TINY, "use_bidirectional_attention": True}}
    REQUIRED = PLAIN


class VaultGemma:
    TINY = {**Gemma2.TINY, "model_type": "vaultgemma", "vocab_size": 283, "max_position_embeddings": 71}
    FEW = {**TINY, "num_hidden_layers": 2}  # more of them add up the class's roundings
    LOGITS = {"": FEW, "unbounded": {**FEW, "attn_logit_softcapping": None, "final_logit_softcapping": None}}


class Gemma3n:
    TINY = {
        "model_type": "gemma3n_text", "vocab_size": 127, "hidden_size": 50, "num_hidden_layers": 6,
        "num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 14, "intermediate_size": 71,
        "max_position_embeddings": 63, "sliding_window": 7, "num_kv_shared_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                        "full_attention", "full_attention"],
        "activation_sparsity_pattern": [0.75, 0.75, 0.0, 0.0, 0.0, 0.0],
        "vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 17, "laurel_rank": 29, "attention_bias": True,
    }  # fmt: skip
    VARIANTS = {
        "unscaled, of several widths": {
            **TINY, "altup_correct_scale": False, "num_kv_shared_layers": 0,
            "intermediate_size": [71, 71, 71, 73, 71, 71],
        },
    }  # fmt: skip
    LOGITS = {"": TINY, **{f"{name}": config for name, config in VARIANTS.items()}}
    SILENT = {"altup_coef_clip": 3.0}
    REQUIRED = {"num_hidden_layers": 20, "hidden_size": 128}


class Gemma4:
    TINY = {
        "model_type": "gemma4_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 6,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "global_head_dim": 14,
        "intermediate_size": 71, "max_position_embeddings": 63, "sliding_window": 5, "num_kv_shared_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                        "full_attention", "full_attention"],
        "use_double_wide_mlp": True, "vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 17,
        "attention_bias": True,
    }  # fmt: skip
    ALIKE = {
        **TINY, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
        "num_global_key_value_heads": 3, "attention_bias": False, "final_logit_softcapping": 3.0,
    }  # fmt: skip
    ROUTED = {
        **ALIKE, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 4, "moe_intermediate_size": 37,
    }  # fmt: skip
    LAYERS_OWN = {
        **ALIKE, "per_layer_config": {n: {"head_dim": 18, "num_key_value_heads": 3} for n in ("1", "04", "5")},
    }  # fmt: skip
    VARIANTS = {"keys as values": ALIKE, "moe": ROUTED, "layers of their own": LAYERS_OWN}
    LOGITS = {"": TINY, "keys as values": ALIKE, "of every expert": {**ROUTED, "top_k_experts": 8}}


class EmbeddingGemma2Text:
    TINY = {
        **GROUPED, "model_type": "embedding_gemma2_text", "vocab_size": 127, "num_hidden_layers": 3,
        "global_head_dim": 14, "num_global_key_value_heads": 3, "max_position_embeddings": 63, "sliding_window": 2,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"], "hidden_size_per_layer_input": 17,
        "attention_bias": True, "embedding_dim": 29,
    }  # fmt: skip
