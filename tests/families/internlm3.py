"""InternLM3: Llama, by Llama's class."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "internlm3", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 45,
    "qkv_bias": True, "bias": True,
}  # fmt: skip
RUN_BY = "Llama"
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = some(draw, llama_like(draw), head_dim=st.none() | EVEN)
    return fields | (dict.fromkeys(("qkv_bias", "bias"), draw(ON)) if draw(ON) else {})


def sized(of: Distinct) -> Sized:
    return grouped(of, qkv_bias=of.on[1], bias=of.on[1])
