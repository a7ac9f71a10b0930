"""Test configs of the ernie lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, SIZES


class Ernie4_5:
    TINY = {**GROUPED, "model_type": "ernie4_5", "vocab_size": 199, "max_position_embeddings": 43, "use_bias": True}
    LOGITS = {"": TINY, "untied": {**TINY, "use_bias": False, "tie_word_embeddings": False}}


class Ernie4_5_Moe:
    TINY = {
        **SIZES, "model_type": "ernie4_5_moe", "vocab_size": 173, "num_hidden_layers": 3, "num_key_value_heads": 2,
        "max_position_embeddings": 61, "use_bias": True, "moe_intermediate_size": 37, "moe_num_experts": 10,
        "moe_num_shared_experts": 3, "moe_k": 4,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed


class Ernie4_5_VLMoe:
    TINY = {
        **SIZES, "model_type": "ernie4_5_vl_moe_text", "vocab_size": 173, "num_hidden_layers": 3,
        "num_key_value_heads": 2, "max_position_embeddings": 61, "use_bias": True, "moe_intermediate_size": [37, 23],
        "moe_num_experts": 10, "moe_num_shared_experts": 3, "moe_k": 4,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default", "mrope_section": [1, 1, 2]},
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed
