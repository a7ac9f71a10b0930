"""Mixtral: Mistral with experts in every layer."""

from hypothesis import strategies as st

from tests.families._drawing import PLAIN, WINDOW, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "mixtral", "vocab_size": 103, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 59,
    "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    return some(draw, fields, sliding_window=st.none() | WINDOW)


def sized(of: Distinct) -> Sized:
    return routed(grouped(of, sliding_window=None), of.more, "num_local_experts", "intermediate_size")
