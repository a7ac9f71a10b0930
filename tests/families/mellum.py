"""Mellum 2: Qwen3's experts; windows and dense layers as lists say."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WINDOW, Draw, Fields, experts, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TURNED = {
    "full_attention": {"rope_type": "default", "rope_theta": 700.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
TINY = {
    "model_type": "mellum", "vocab_size": 431, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 113,
    "moe_intermediate_size": 37, "num_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"], "attention_bias": True, "rope_parameters": TURNED,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = layer_types(draw, llama_like(draw, null_kv=False) | experts(draw, "num_experts"))
    fields |= {"sliding_window": draw(WINDOW), "moe_intermediate_size": draw(SMALL)}
    layers = fields["num_hidden_layers"]
    networks = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    return some(draw, fields, attention_bias=ON, mlp_layer_types=st.none() | networks)


def sized(of: Distinct) -> Sized:
    return routed(grouped(of, attention_bias=of.on[1]), of.more, "num_experts", "moe_intermediate_size")
