"""Cohere's experts: dense layers first, windows in patterns, full layers without positions."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, WIDTH, WINDOW, Draw, Fields, experts, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "cohere2_moe", "vocab_size": 509, "hidden_size": 60, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 14, "intermediate_size": 37,
    "max_position_embeddings": 67, "attention_bias": True, "logit_scale": 0.3, "sliding_window": 5,
    "sliding_window_pattern": 2, "first_k_dense_replace": 2, "prefix_dense_intermediate_size": 71,
    "prefix_dense_sliding_window_pattern": 2, "num_experts": 7, "num_experts_per_tok": 4, "num_shared_experts": 3,
    "shared_expert_combination_strategy": "sum",
}  # fmt: skip
EVERY = {**TINY, "num_experts_per_tok": 7}  # the reference's routing is fixed
LOGITS = {
    "of every expert": EVERY,
    "with sigmoids and RMSNorm": {**EVERY, "expert_selection_fn": "sigmoid", "rms_norm_eps": 1e-3},
    "rotated in full layers": {**EVERY, "prefix_dense_sliding_window_pattern": 1, "num_shared_experts": 0},
}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw) | experts(draw, "num_experts") | {"sliding_window": draw(WINDOW)}
    layers = fields["num_hidden_layers"]
    networks = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    patterns = {"sliding_window_pattern": st.integers(1, 5), "prefix_dense_sliding_window_pattern": st.integers(1, 3)}
    some(draw, layer_types(draw, fields), attention_bias=ON, head_dim=EVEN, num_shared_experts=st.integers(0, 3))
    some(draw, fields, first_k_dense_replace=st.integers(0, layers), prefix_dense_intermediate_size=WIDTH, **patterns)
    return some(draw, fields, mlp_layer_types=st.none() | networks, rms_norm_eps=st.none() | st.just(1e-5))


def sized(of: Distinct) -> Sized:
    plain = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    return routed(plain, of.more, "num_experts", "intermediate_size")
