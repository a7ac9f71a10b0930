"""EXAONE 4: norms behind, norms of queries and keys, windowed layers and full ones without positions."""

from hypothesis import strategies as st

from tests.families._drawing import WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "exaone4", "vocab_size": 281, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 69,
    "sliding_window": 5, "sliding_window_pattern": 2,
}  # fmt: skip
ALL_FULL = {"sliding_window": None, "layer_types": ["full_attention"] * 3}
VARIANTS = {"without windows": {**TINY, **ALL_FULL}}
LOGITS = {"": TINY, "without windows": VARIANTS["without windows"]}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False)
    if draw(st.booleans()):
        full = ["full_attention"] * fields["num_hidden_layers"]
        return fields | {"sliding_window": None, "layer_types": full}
    fields = layer_types(draw, fields | {"sliding_window": draw(WINDOW)})
    return some(draw, fields, sliding_window_pattern=st.integers(1, 5))


def sized(of: Distinct) -> Sized:
    return grouped(of, layer_types=["full_attention"] * of.L)
