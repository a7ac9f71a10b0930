"""OLMo 1: norms without parameters; bounded queries, keys and values."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "olmo", "vocab_size": 257, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 59,
    "attention_bias": True, "clip_qkv": 0.7,
}  # fmt: skip
LOGITS = {"": TINY, "unbounded": {**TINY, "clip_qkv": None, "attention_bias": False}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON, clip_qkv=st.none() | st.just(8.0))


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], clip_qkv=8.0)
