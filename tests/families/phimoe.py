"""Phi-3.5-MoE: Mixtral with LayerNorms and biases."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "phimoe", "vocab_size": 269, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 12,
    "num_key_value_heads": 4, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 63,
    "attention_bias": True, "lm_head_bias": True, "num_local_experts": 7, "num_experts_per_tok": 2, "sliding_window": 5,
}  # fmt: skip
LOGITS = {}  # the class weighs experts in a way of its own
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | {"num_local_experts": draw(st.integers(2, 6))}
    biases = {"attention_bias": ON, "lm_head_bias": ON}
    return some(draw, fields, **biases, num_experts_per_tok=st.just(2), sliding_window=st.none() | WINDOW)


def sized(of: Distinct) -> Sized:
    experts, width = of.more[0] + 2, of.more[1]
    own = {"sliding_window": None, "num_local_experts": experts, "intermediate_size": width}
    config, sizes = grouped(of, **own, attention_bias=of.on[1], lm_head_bias=of.on[2])
    dense = {letter: size for letter, size in sizes.items() if letter != "F"}
    return config, {**dense, "A": 2, "E": experts, "Fe": width}
