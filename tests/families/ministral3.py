"""Ministral 3: Mistral without a window; queries grow with their position."""

from hypothesis import strategies as st

from tests.families._drawing import WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "ministral3", "vocab_size": 181, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 35,
    "sliding_window": 5, "pad_token_id": 0,
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
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False) | {"pad_token_id": 0}, sliding_window=st.none() | WINDOW)


def sized(of: Distinct) -> Sized:
    return grouped(of)
