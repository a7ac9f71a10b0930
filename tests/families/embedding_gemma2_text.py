"""EmbeddingGemma 2's encoder of text: windows to both sides, heads of their own in full layers, rows of every layer."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, Draw, Fields, layer_types, llama_like, some, without
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "embedding_gemma2_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "global_head_dim": 14,
    "num_global_key_value_heads": 3, "intermediate_size": 71, "max_position_embeddings": 63, "sliding_window": 2,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"], "hidden_size_per_layer_input": 17,
    "attention_bias": True, "embedding_dim": 29,
}  # fmt: skip
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = without(layer_types(draw, llama_like(draw, null_kv=False, head_dim=False)), "tie_word_embeddings")
    heads, layers = fields["num_attention_heads"], fields["num_hidden_layers"]
    fields |= {"head_dim": draw(EVEN), "global_head_dim": draw(EVEN), "sliding_window": draw(SMALL)}
    fields |= {"hidden_size_per_layer_input": draw(SMALL), "embedding_dim": draw(SMALL), "pad_token_id": 0}
    divisors = [count for count in range(1, heads + 1) if heads % count == 0]
    kinds = [*(fields.get("layer_types") or ["sliding_attention"] * layers)[:-1], "full_attention"]
    own = st.fixed_dictionaries({}, optional={"head_dim": EVEN, "num_key_value_heads": st.sampled_from(divisors)})
    alike = st.fixed_dictionaries(dict.fromkeys(sorted({*kinds}), own))  # of one type all, or the class refuses
    each = alike.map(lambda of: {str(number): of[kind] for number, kind in enumerate(kinds)})
    fields["num_global_key_value_heads"] = draw(st.sampled_from(divisors))
    if fields.get("layer_types"):
        some(draw, fields, per_layer_config=each)
    else:
        some(draw, fields, sliding_window_pattern=st.integers(1, 4))
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    own = {"global_head_dim": of.H, "num_global_key_value_heads": of.K, "hidden_size_per_layer_input": of.P}
    return {**config, **own, "embedding_dim": of.P + 300}, {
        **sizes,
        "T": of.S,
        "Dy": of.P,
        "Lp": of.L,
        "Dv": of.P + 300,
    }
