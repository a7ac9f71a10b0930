"""Step 3.5 and 3.7: a gate for each head, other query heads in windowed layers, experts beside a shared network."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WINDOW, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

FULL, SLIDING = "full_attention", "sliding_attention"
TINY = {
    "model_type": "step3p5", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 4, "pad_token_id": 0,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 71,
    "max_position_embeddings": 83, "moe_intermediate_size": 37, "share_expert_dim": 29, "n_routed_experts": 16,
    "num_experts_per_tok": 4, "sliding_window": 7, "attention_bias": True, "mlp_bias": True,
    "layer_types": [FULL, SLIDING, SLIDING, FULL], "num_sliding_attention_heads": 10,
    "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}, "moe_layers_enum": "1,2,3",
}  # fmt: skip
DENSE = {**TINY, "moe_layers_enum": ""}  # the class weighs experts by sigmoids
LISTED = {"rope_parameters": None, "rope_theta": [5e5, 1e4, 1e4, 5e5], "partial_rotary_factors": [0.5, 1, 1, 0.5]}
LOGITS = {"": DENSE, "with a list of angles": {**DENSE, **LISTED}}
REQUIRED = {"num_hidden_layers": 4, "sliding_window": 7}  # the class makes its mask even where no layer has it


def drawn(draw: Draw) -> Fields:
    """Lists with and without layers that predict further tokens; heads of windowed layers said in either way."""
    fields = llama_like(draw, null_kv=False, head_dim=False) | experts(draw, "n_routed_experts")
    fields |= {"head_dim": 4 * draw(SMALL), "moe_intermediate_size": draw(SMALL), "sliding_window": draw(WINDOW)}
    fields |= {"pad_token_id": 0, "share_expert_dim": draw(SMALL)}
    layers, kv = fields["num_hidden_layers"], fields["num_key_value_heads"]
    further = draw(st.integers(0, 2))
    long = layers + further
    fields |= {"num_nextn_predict_layers": further} if further else {}
    kinds = st.lists(st.sampled_from([FULL, SLIDING]), min_size=long, max_size=long)
    networks = st.lists(st.sampled_from(["dense", "sparse"]), min_size=long, max_size=long)
    numbers = st.lists(st.integers(0, 4))
    listed = numbers | numbers.map(lambda some: ",".join(map(str, some)))
    some(draw, fields, layer_types=kinds, mlp_layer_types=networks, moe_layers_enum=listed)
    heads = SMALL.map(lambda group: group * kv)
    other = heads.map(lambda count: {"attention_type": SLIDING, "num_attention_heads": count})
    some(draw, fields, num_sliding_attention_heads=heads, attention_other_setting=other)
    return some(draw, fields, attention_bias=ON, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    own = {"attention_bias": of.on[1], "mlp_layer_types": ["sparse"] * of.L, "pad_token_id": 0}
    config, sizes = routed(grouped(of, **own), of.more, "n_routed_experts", "moe_intermediate_size")
    return {**config, "share_expert_dim": of.P}, {**sizes, "Fs": of.P}
