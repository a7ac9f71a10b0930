"""Laguna: query heads of each layer's own, a gate for each head or each element, experts beside a shared network."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WINDOW, Draw, Fields, experts, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

FULL, SLIDING = "full_attention", "sliding_attention"
TINY = {
    "model_type": "laguna", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 71,
    "max_position_embeddings": 83, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29,
    "num_experts": 16, "num_experts_per_tok": 4, "sliding_window": 7, "attention_bias": True,
    "rope_parameters": {FULL: {"partial_rotary_factor": 0.5, "rope_theta": 5e5, "rope_type": "default"},
    SLIDING: {"partial_rotary_factor": 0.75, "rope_theta": 1e4, "rope_type": "default"}},
    "layer_types": [FULL, SLIDING, SLIDING], "num_attention_heads_per_layer": [6, 10, 10],
}  # fmt: skip
VARIANTS = {"a gate for each element": {**TINY, "gating": "per-element"}}
DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
LOGITS = {"": DENSE, "gated by elements": {**DENSE, "gating": "per-element"}}
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False, head_dim=False) | experts(draw, "num_experts")
    fields |= {"head_dim": 4 * draw(SMALL), "moe_intermediate_size": draw(SMALL), "sliding_window": draw(WINDOW)}
    layers, kv = fields["num_hidden_layers"], fields["num_key_value_heads"]
    listed = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    heads = st.lists(SMALL.map(lambda group: group * kv), min_size=layers, max_size=layers)
    optional = {"mlp_layer_types": st.none() | listed, "num_attention_heads_per_layer": st.none() | heads}
    gating = st.sampled_from([True, "per-head", "per-element"])
    some(draw, fields, attention_bias=ON, shared_expert_intermediate_size=SMALL, gating=gating, **optional)
    return layer_types(draw, fields)


def sized(of: Distinct) -> Sized:
    own = {
        "attention_bias": of.on[1],
        "mlp_layer_types": ["sparse"] * of.L,
        "gating": ["per-head", "per-element"][of.on[2]],
    }
    config, sizes = routed(grouped(of, **own), of.more, "num_experts", "moe_intermediate_size")
    config |= {"shared_expert_intermediate_size": of.P, "head_dim": 4 * of.H}
    return config, {**sizes, "Fs": of.P, "H": 4 * of.H, "Hr": 2 * of.H}
