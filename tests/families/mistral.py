"""Mistral: Llama with a window in every layer, or in none."""

from hypothesis import strategies as st

from tests.families._drawing import PLAIN, WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "mistral", "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 107, "max_position_embeddings": 59,
    "sliding_window": None,
}  # fmt: skip
VARIANTS = {"windowed": {**TINY, "sliding_window": 5}}
LOGITS = {"": TINY, **VARIANTS}
REQUIRED = {**PLAIN, "sliding_window": None}


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False), sliding_window=st.none() | WINDOW)


def sized(of: Distinct) -> Sized:
    return grouped(of, sliding_window=None)
