"""Jais 2: LayerNorms, biases, two matrices in a network."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "jais2", "vocab_size": 373, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 109,
    "eos_token_id": 1,
}  # fmt: skip
LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "mlp_bias": False}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2])
