"""Phi-3: one matrix for q, k and v, another for gate and up; a window."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

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


def sized(of: Distinct) -> Sized:
    return grouped(of, sliding_window=None)
