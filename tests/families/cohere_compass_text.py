"""Cohere's North: attention and network side by side, layers with a window, layers without positions."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

FULL, SLIDING = "full_attention", "sliding_attention"
ANGLES = {"rope_type": "default", "rope_theta": 10000.0}
BOTH = {FULL: ANGLES, SLIDING: ANGLES}
TINY = {
    "model_type": "cohere_compass_text", "vocab_size": 277, "hidden_size": 60, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 67,
    "attention_bias": True, "logit_scale": 0.3, "sliding_window": 5, "layer_types": [FULL, SLIDING, SLIDING],
    "rope_parameters": {FULL: None, SLIDING: ANGLES},
}  # fmt: skip
LOGITS = {"": TINY, "all rotated": {**TINY, "rope_parameters": BOTH, "layer_types": None, "logit_scale": None}}
REQUIRED = {"num_hidden_layers": 2, "rope_parameters": {FULL: ANGLES}}


def drawn(draw: Draw) -> Fields:
    angles = st.none() | st.just(ANGLES)
    fields = layer_types(draw, llama_like(draw, head_dim=False) | {"sliding_window": draw(WINDOW)})
    fields["rope_parameters"] = {FULL: draw(angles), SLIDING: draw(angles)}
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    own = {"num_key_value_heads": of.K, "intermediate_size": of.F, "rope_parameters": BOTH}
    return parts_of_hidden(of, **own, attention_bias=of.on[1])
