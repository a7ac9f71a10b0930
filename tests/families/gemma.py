"""Gemma: a tied head, scaled tokens, one key head in the small ones."""

from tests.families._drawing import ON, PLAIN, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "gemma", "vocab_size": 67, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 101, "max_position_embeddings": 51,
    "attention_bias": True, "hidden_act": "gelu",
}  # fmt: skip
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1])
