"""Test configs of the ernie lineage: a small one of each family, and variants."""


class Ernie4_5:
    TINY = {
        "model_type": "ernie4_5", "vocab_size": 199, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 43, "use_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "untied": {**TINY, "use_bias": False, "tie_word_embeddings": False}}


class Ernie4_5_Moe:
    TINY = {
        "model_type": "ernie4_5_moe", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 61,
        "use_bias": True, "moe_intermediate_size": 37, "moe_num_experts": 10, "moe_num_shared_experts": 3,
        "moe_k": 4,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed


class Ernie4_5_VLMoe:
    TINY = {
        "model_type": "ernie4_5_vl_moe_text", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 61,
        "use_bias": True, "moe_intermediate_size": [37, 23], "moe_num_experts": 10, "moe_num_shared_experts": 3,
        "moe_k": 4,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default", "mrope_section": [1, 1, 2]},
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed
