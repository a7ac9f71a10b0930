"""OLMo 2: each result is normed before it is added; norms of all queries and keys."""

from tests.families._drawing import ON, PLAIN, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "olmo2", "vocab_size": 179, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 33,
    "attention_bias": True,
}  # fmt: skip
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1])
