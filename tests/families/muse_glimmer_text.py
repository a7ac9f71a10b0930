"""Muse Glimmer: gated attention, windows, layers that are not rotated, norms without weights."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "muse_glimmer_text", "vocab_size": 467, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
    "max_position_embeddings": 39, "attention_bias": True, "sliding_window": 7,
}  # fmt: skip
LOGITS = {"": TINY, "all rotated": {**TINY, "layer_rope_theta": [5e5] * 4, "attention_bias": False}}
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    """Heads of a size of their own, which the class wants to divide the hidden size by number."""
    fields = llama_like(draw, null_kv=False) | {"sliding_window": draw(WINDOW)}
    layers = fields["num_hidden_layers"]
    bases = st.none() | st.lists(st.sampled_from([0, 10000.0]), min_size=layers, max_size=layers)
    return layer_types(draw, some(draw, fields, attention_bias=ON, layer_rope_theta=bases))


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
