"""Llama: grouped queries, rotary positions, biases on demand."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, PLAIN, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "llama", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 53,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
STRETCHED = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
"""Llama 3.1's stretched angles, at a length that tiny contexts reach."""
LOGITS = {
    "": TINY,
    "plain": {**TINY, "attention_bias": False, "mlp_bias": False, "rope_theta": 500.0},
    "stretched": {**TINY, "rope_theta": 1000.0, "rope_scaling": STRETCHED, "rms_norm_eps": 1e-3},
    "slowed": {**TINY, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "as transformers 5 spells it": {**TINY, "rope_parameters": {**STRETCHED, "rope_theta": 700.0}},
    "relu": {**TINY, "hidden_act": "relu"},
}
REQUIRED = {**PLAIN, "hidden_size": 64, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2])
