"""Granite with experts: Mixtral with constants that multiply embeddings, scores, results and logits."""

from tests.families._drawing import EVEN, ON, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "granitemoe", "vocab_size": 373, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 109,
    "embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.22, "attention_multiplier": 0.13,
    "attention_bias": True, "num_local_experts": 7, "num_experts_per_tok": 4,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw) | experts(draw, "num_local_experts")
    return some(draw, fields, attention_bias=ON, head_dim=EVEN)


def sized(of: Distinct) -> Sized:
    return routed(grouped(of, attention_bias=of.on[1]), of.more, "num_local_experts", "intermediate_size")
