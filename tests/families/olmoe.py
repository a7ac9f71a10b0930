"""OLMoE: experts, and norms over all queries and all keys."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden, routed

TINY = {
    "model_type": "olmoe", "vocab_size": 263, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 37, "max_position_embeddings": 61,
    "attention_bias": True, "clip_qkv": 0.7, "num_experts": 7, "num_experts_per_tok": 4,
}  # fmt: skip
LOGITS = {
    "of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}
}  # the reference's routing is fixed
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False) | experts(draw, "num_experts")
    return some(draw, fields, attention_bias=ON, clip_qkv=st.none() | st.just(8.0))


def sized(of: Distinct) -> Sized:
    whole = parts_of_hidden(of, num_key_value_heads=of.K, attention_bias=of.on[1], clip_qkv=8.0)
    return routed(whole, of.more, "num_experts", "intermediate_size")
