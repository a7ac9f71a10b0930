"""Hunyuan's dense models: norms of queries and keys behind their rotation."""

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "hunyuan_v1_dense", "vocab_size": 139, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
    "max_position_embeddings": 83, "attention_bias": True,
}  # fmt: skip
REQUIRED = {"head_dim": 128, "num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False)
    return some(draw, {**fields, "head_dim": draw(EVEN)}, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1])
