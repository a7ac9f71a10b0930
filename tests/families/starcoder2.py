"""StarCoder2: Llama's attention with biases and a window; a network of two matrices."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, ON, WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "starcoder2", "vocab_size": 283, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 71,
    "sliding_window": 5,
}  # fmt: skip
LOGITS = {"": TINY, "without biases": {**TINY, "use_bias": False, "sliding_window": None}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False), use_bias=ON, sliding_window=st.none() | WINDOW)


def sized(of: Distinct) -> Sized:
    return grouped(of, use_bias=of.on[1], sliding_window=None)
