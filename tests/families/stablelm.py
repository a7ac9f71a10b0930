"""Test configs of the stablelm lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, WIDTH, WINDOW, Draw, Fields, llama_like, of_whole_heads, some


class StableLm:
    TINY = {
        "model_type": "stablelm", "vocab_size": 293, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 73,
        "use_qkv_bias": True, "partial_rotary_factor": 0.5,
    }  # fmt: skip
    PARALLEL = {"parallel": {**TINY, "use_parallel_residual": True, "use_qkv_bias": False}}
    VARIANTS = {**PARALLEL, "normed": {**TINY, "qk_layernorm": True}}
    LOGITS = {"": TINY, **PARALLEL}  # the class has a module for the norm of each head: Cohere's are one

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False, head_dim=False)
        parts = 2 if draw(ON) else 1  # what of a head is turned has to be even
        fields["hidden_size"] *= parts
        fields["partial_rotary_factor"] = 1 / parts
        return some(draw, fields, use_qkv_bias=ON, use_parallel_residual=ON, qk_layernorm=ON)


class Persimmon:
    TINY = {
        "model_type": "persimmon", "vocab_size": 347, "hidden_size": 120, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 97,
    }  # fmt: skip
    VARIANTS = {"without norms of heads": {**TINY, "qk_layernorm": False}}
    LOGITS = {"": TINY, **VARIANTS}
    BY_HEAD = True

    def drawn(draw: Draw) -> Fields:
        whole = draw(ON)
        fields = of_whole_heads(draw, EVEN if whole else EVEN.map(lambda turned: 2 * turned))
        fields |= {"partial_rotary_factor": 1.0} if whole else {}
        return some(draw, {**fields, "intermediate_size": draw(WIDTH)}, qk_layernorm=ON)


class Plamo3:
    TINY = {
        "model_type": "plamo3", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 63,
        "window_size": 5, "sliding_window_pattern": 3,
    }  # fmt: skip
    SILENT = {"interleaved_sliding_window": [5, 5, None, 5]}
    RUN_BY = "Gemma3"

    def drawn(draw: Draw) -> Fields:
        fields = {**llama_like(draw, null_kv=False), "window_size": draw(WINDOW)}
        return some(draw, fields, sliding_window_pattern=st.integers(1, 4))
