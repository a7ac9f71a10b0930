"""Test configs of the mistral lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, LAYERS, PLAIN


class Mistral:
    TINY = {
        "model_type": "mistral", "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 107, "max_position_embeddings": 59,
        "sliding_window": None,
    }  # fmt: skip
    VARIANTS = {"windowed": {**TINY, "sliding_window": 5}}
    LOGITS = {"": TINY, **VARIANTS}
    REQUIRED = {**PLAIN, "sliding_window": None}


class Mixtral:
    TINY = {
        **GROUPED, "model_type": "mixtral", "vocab_size": 103, "intermediate_size": 37, "max_position_embeddings": 59,
        "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
    REQUIRED = PLAIN


class Ministral:
    TINY = {
        **GROUPED, "model_type": "ministral", "vocab_size": 379, "max_position_embeddings": 113, "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    LOGITS = {"": TINY, "windowed": {**TINY, "layer_types": None}}
    REQUIRED = {"num_hidden_layers": 2, "head_dim": 128}  # without it the class does not run


class Ministral3:
    TINY = {
        **GROUPED, "model_type": "ministral3", "vocab_size": 181, "max_position_embeddings": 35, "sliding_window": 5,
        "pad_token_id": 0,
    }  # fmt: skip
    GROWING = {
        "rope_type": "default",
        "rope_theta": 700.0,
        "llama_4_scaling_beta": 0.4,
        "original_max_position_embeddings": 6,
    }
    """Queries that grow within the few positions that are asked for."""
    LOGITS = {
        "windowed": {**TINY, "rope_parameters": GROWING},
        "growing": {**TINY, "rope_parameters": GROWING, "sliding_window": None},
    }


class Starcoder2:
    TINY = {
        **GROUPED, "model_type": "starcoder2", "vocab_size": 283, "max_position_embeddings": 71, "sliding_window": 5,
    }  # fmt: skip
    LOGITS = {"": TINY, "without biases": {**TINY, "use_bias": False, "sliding_window": None}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}
