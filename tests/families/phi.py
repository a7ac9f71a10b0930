"""Test configs of the phi lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, ON, WINDOW, Draw, Fields, llama_like, some


class Phi:
    TINY = {
        "model_type": "phi", "vocab_size": 131, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 49, "qk_layernorm": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "plain": {**TINY, "qk_layernorm": False, "partial_rotary_factor": 1.0}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, head_dim=False)
        parts = 2 if draw(ON) else 1  # what of a head is turned has to be even
        fields["hidden_size"] *= parts
        fields["partial_rotary_factor"] = 1 / parts
        return some(draw, fields, qk_layernorm=ON)


class Phi3:
    TINY = {
        "model_type": "phi3", "vocab_size": 137, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 55,
        "sliding_window": 5, "partial_rotary_factor": 0.8, "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "without a window": {**TINY, "sliding_window": None, "partial_rotary_factor": 1.0}}
    # Its class's token of padding is the 32,000th.
    REQUIRED = {**LAYERS, "vocab_size": 32064, "num_attention_heads": 4}

    def drawn(draw: Draw) -> Fields:
        fields = {**llama_like(draw), "pad_token_id": 0}  # whose default is past a small vocabulary
        return some(draw, fields, sliding_window=st.none() | WINDOW)


class Phimoe:
    TINY = {
        "model_type": "phimoe", "vocab_size": 269, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 12,
        "num_key_value_heads": 4, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 63,
        "attention_bias": True, "lm_head_bias": True, "num_local_experts": 7, "num_experts_per_tok": 2,
        "sliding_window": 5,
    }  # fmt: skip
    LOGITS = {}  # the class weighs experts in a way of its own

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False) | {"num_local_experts": draw(st.integers(2, 6))}
        biases = {"attention_bias": ON, "lm_head_bias": ON}
        return some(draw, fields, **biases, num_experts_per_tok=st.just(2), sliding_window=st.none() | WINDOW)
