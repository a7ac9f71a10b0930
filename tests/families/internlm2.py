"""InternLM2: Llama, by names of its own."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "internlm2", "vocab_size": 197, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 67, "max_position_embeddings": 41, "bias": True,
}  # fmt: skip
RUN_BY = "Llama"
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, bias=of.on[1])
