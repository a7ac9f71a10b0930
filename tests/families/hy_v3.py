"""Hunyuan 3: a dense layer, then experts beside a shared network."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "hy_v3", "vocab_size": 419, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 121,
    "attention_bias": True, "moe_intermediate_size": 37, "num_experts": 7, "num_shared_experts": 2,
    "num_experts_per_tok": 4,
}  # fmt: skip
LOGITS = {"": {**TINY, "mlp_layer_types": ["dense"] * 3}}  # the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | {"head_dim": draw(EVEN)}
    count, layers = draw(SMALL), fields["num_hidden_layers"]
    fields |= {"num_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
    fields |= {"moe_intermediate_size": draw(SMALL), "num_shared_experts": draw(st.integers(1, 3))}
    kinds = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    return some(draw, fields, attention_bias=ON, mlp_layer_types=st.none() | kinds)


def sized(of: Distinct) -> Sized:
    one = grouped(of, attention_bias=of.on[1], mlp_layer_types=["sparse"] * of.L)
    config, sizes = routed(one, of.more, "num_experts", "moe_intermediate_size")
    return {**config, "num_shared_experts": 2}, {**sizes, "Fs": 2 * sizes["Fe"]}
