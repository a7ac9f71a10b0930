"""Test configs of the phi lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, LAYERS


class Phi:
    TINY = {
        "model_type": "phi", "vocab_size": 131, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 49, "qk_layernorm": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "plain": {**TINY, "qk_layernorm": False, "partial_rotary_factor": 1.0}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class Phi3:
    TINY = {
        **GROUPED, "model_type": "phi3", "vocab_size": 137, "max_position_embeddings": 55, "sliding_window": 5,
        "partial_rotary_factor": 0.8, "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "without a window": {**TINY, "sliding_window": None, "partial_rotary_factor": 1.0}}
    # Its class's token of padding is the 32,000th.
    REQUIRED = {**LAYERS, "vocab_size": 32064, "num_attention_heads": 4}


class Phimoe:
    TINY = {
        **GROUPED, "model_type": "phimoe", "vocab_size": 269, "num_attention_heads": 12, "num_key_value_heads": 4,
        "intermediate_size": 37, "max_position_embeddings": 63, "attention_bias": True, "lm_head_bias": True,
        "num_local_experts": 7, "num_experts_per_tok": 2, "sliding_window": 5,
    }  # fmt: skip
    LOGITS = {}  # the class weighs experts in a way of its own
