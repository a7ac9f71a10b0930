"""Flint: sinks, windows in most layers, experts beside a shared network in all but the first two."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, WINDOW, Draw, Fields, experts, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "flint", "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
    "max_position_embeddings": 83, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29,
    "num_experts": 8, "num_experts_per_tok": 4, "sliding_window": 7, "attention_bias": True,
    "mlp_only_layers": [0],
}  # fmt: skip
LOGITS = {"": {**TINY, "mlp_only_layers": [0, 1, 2, 3]}}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 4}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False, head_dim=False) | experts(draw, "num_experts")
    fields |= {"head_dim": draw(EVEN), "moe_intermediate_size": draw(SMALL), "sliding_window": draw(WINDOW)}
    fields |= {"num_hidden_layers": draw(st.integers(1, 5))}
    optional = {"decoder_sparse_step": st.integers(1, 3), "mlp_only_layers": st.none() | st.lists(st.integers(0, 4))}
    some(draw, fields, attention_bias=ON, shared_expert_intermediate_size=SMALL, **optional)
    return layer_types(draw, fields)


def sized(of: Distinct) -> Sized:
    own = {"attention_bias": of.on[1], "layer_types": ["full_attention"] * of.L, "mlp_only_layers": []}
    config, sizes = routed(grouped(of, **own), of.more, "num_experts", "moe_intermediate_size")
    return {**config, "shared_expert_intermediate_size": of.P}, {**sizes, "Fs": of.P}
