"""Apertus: two learned numbers in every activation."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "apertus", "vocab_size": 239, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 73, "max_position_embeddings": 53,
    "attention_bias": True,
}  # fmt: skip
VARIANTS = {"plain": {**TINY, "hidden_act": "silu", "attention_bias": False}}
LOGITS = {"": TINY, **VARIANTS}
SILENT = {"qk_norm": True, "post_norm": False, "mlp_bias": False}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    acts = st.sampled_from(["xielu", "silu", "relu2"])
    return some(draw, llama_like(draw), attention_bias=ON, hidden_act=acts)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1])
    return config, {**sizes, "U": 1}
