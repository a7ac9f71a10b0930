"""IQuest-Coder: Llama, by Llama's class."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "iquestcoder", "vocab_size": 223, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 47,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
RUN_BY = "Llama"
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2])
