"""Test configs of the exaone lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED


class Exaone:
    TINY = {
        "model_type": "exaone", "vocab_size": 199, "hidden_size": 60, "num_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "intermediate_size": 73, "max_position_embeddings": 43, "tie_word_embeddings": False,
        "activation_function": "silu",
    }  # fmt: skip
    RUN_BY = "Llama"


class Exaone4:
    TINY = {
        **GROUPED, "model_type": "exaone4", "vocab_size": 281, "num_hidden_layers": 3, "max_position_embeddings": 69,
        "sliding_window": 5, "sliding_window_pattern": 2,
    }  # fmt: skip
    ALL_FULL = {"sliding_window": None, "layer_types": ["full_attention"] * 3}
    VARIANTS = {"without windows": {**TINY, **ALL_FULL}}
    LOGITS = {"": TINY, "without windows": VARIANTS["without windows"]}


class ExaoneMoe:
    TINY = {
        **GROUPED, "model_type": "exaone_moe", "vocab_size": 397, "num_hidden_layers": 3,
        "max_position_embeddings": 119, "sliding_window": 5, "sliding_window_pattern": 2, "moe_intermediate_size": 37,
        "num_experts": 7, "num_shared_experts": 2, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
