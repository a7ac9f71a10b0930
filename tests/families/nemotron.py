"""Nemotron: LayerNorms around 1, two matrices in a network."""

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "nemotron", "vocab_size": 337, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 93,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "mlp_bias": False}}
REQUIRED = {"num_hidden_layers": 2, "num_key_value_heads": 8}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False)
    fields["head_dim"], whole = draw(EVEN), draw(ON)
    fields |= {"partial_rotary_factor": 1.0} if whole else {"head_dim": 2 * fields["head_dim"]}
    return some(draw, fields, attention_bias=ON, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2], partial_rotary_factor=1.0)
    return config, {**sizes, "Hr": of.H}
