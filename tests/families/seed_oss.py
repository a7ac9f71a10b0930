"""Seed-OSS: Llama with biases on q, k and v."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "seed_oss", "vocab_size": 251, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 57,
    "attention_out_bias": True, "mlp_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "of q, k and v": {**TINY, "attention_out_bias": False, "mlp_bias": False}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    biases = {"attention_bias": ON, "attention_out_bias": ON, "mlp_bias": ON}
    return some(draw, llama_like(draw), **biases, head_dim=st.none() | EVEN)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], attention_out_bias=of.on[2], mlp_bias=of.seed % 2 == 0)
