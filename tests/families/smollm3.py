"""SmolLM3: some layers are not rotated, and may have a window."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "smollm3", "vocab_size": 191, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 37,
    "attention_bias": True, "mlp_bias": True, "pad_token_id": 0, "no_rope_layer_interval": 2,
}  # fmt: skip
VARIANTS = {"windowed": {**TINY, "use_sliding_window": True, "sliding_window": 5}}
LOGITS = {
    "": TINY,
    "windowed": VARIANTS["windowed"],
    "listed": {**TINY, "no_rope_layers": [0, 1, 1, 0], "attention_bias": False},
}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = some(
        draw,
        llama_like(draw) | {"pad_token_id": 0},
        attention_bias=ON,
        mlp_bias=ON,
        no_rope_layer_interval=st.integers(1, 5),
    )
    layers = fields["num_hidden_layers"]
    some(draw, fields, no_rope_layers=st.none() | st.lists(st.integers(0, 1), min_size=layers, max_size=layers + 2))
    if not draw(ON):
        return some(draw, fields, sliding_window=st.none() | WINDOW)
    return layer_types(draw, fields | {"use_sliding_window": True, "sliding_window": draw(WINDOW)})


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2], no_rope_layer_interval=99)
