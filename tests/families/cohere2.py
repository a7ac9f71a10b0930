"""Command A: windowed layers, and full ones without positions."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "cohere2", "vocab_size": 277, "hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 67,
    "attention_bias": True, "logit_scale": 0.3, "sliding_window": 5, "sliding_window_pattern": 2,
}  # fmt: skip
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = layer_types(draw, llama_like(draw, head_dim=False) | {"sliding_window": draw(WINDOW)})
    return some(draw, fields, attention_bias=ON, sliding_window_pattern=st.integers(1, 5))


def sized(of: Distinct) -> Sized:
    own = {"num_key_value_heads": of.K, "intermediate_size": of.F, "layer_types": ["full_attention"] * of.L}
    return parts_of_hidden(of, **own, attention_bias=of.on[1])
