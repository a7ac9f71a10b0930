"""Test configs of the stablelm lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, SIZES


class StableLm:
    TINY = {
        **SIZES, "model_type": "stablelm", "vocab_size": 293, "num_key_value_heads": 2, "max_position_embeddings": 73,
        "use_qkv_bias": True, "partial_rotary_factor": 0.5,
    }  # fmt: skip
    PARALLEL = {"parallel": {**TINY, "use_parallel_residual": True, "use_qkv_bias": False}}
    VARIANTS = {**PARALLEL, "normed": {**TINY, "qk_layernorm": True}}
    LOGITS = {"": TINY, **PARALLEL}  # the class has a module for the norm of each head: Cohere's are one


class Persimmon:
    TINY = {**SIZES, "model_type": "persimmon", "vocab_size": 347, "hidden_size": 120, "max_position_embeddings": 97}
    VARIANTS = {"without norms of heads": {**TINY, "qk_layernorm": False}}
    LOGITS = {"": TINY, **VARIANTS}
    BY_HEAD = True


class Plamo3:
    TINY = {
        **GROUPED, "model_type": "plamo3", "vocab_size": 127, "num_hidden_layers": 4, "max_position_embeddings": 63,
        "window_size": 5, "sliding_window_pattern": 3,
    }  # fmt: skip
    SILENT = {"interleaved_sliding_window": [5, 5, None, 5]}
    RUN_BY = "Gemma3"
