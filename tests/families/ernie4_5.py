"""ERNIE 4.5: Llama with biases everywhere or nowhere."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "ernie4_5", "vocab_size": 199, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 43,
    "use_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "untied": {**TINY, "use_bias": False, "tie_word_embeddings": False}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), use_bias=ON, head_dim=st.none() | EVEN)


def sized(of: Distinct) -> Sized:
    return grouped(of, use_bias=of.on[1])
