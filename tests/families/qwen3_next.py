"""Qwen3-Next: gated DeltaNet, attention with a gate in some layers, experts in some."""

from hypothesis import strategies as st

from tests.families._deltas import deltas, linear_layers, sized_deltas
from tests.families._drawing import ON, Draw, Fields, llama_like, mixed_layers, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "qwen3_next", "vocab_size": 107, "hidden_size": 44, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 71,
    "max_position_embeddings": 53, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29,
    "num_experts": 7, "num_experts_per_tok": 4, "mlp_only_layers": [1], "full_attention_interval": 3,
    "linear_conv_kernel_dim": 5, "linear_key_head_dim": 10, "linear_value_head_dim": 11, "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
}  # fmt: skip
# The reference's routing is fixed.
LOGITS = {
    "of every expert": {**TINY, "num_experts_per_tok": 7},
    "of dense layers": {**TINY, "mlp_only_layers": [0, 1, 2, 3], "attention_bias": True, "linear_conv_kernel_dim": 1},
}
BY_KEY_HEAD = True
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | mixed_layers(draw)
    fields |= {"shared_expert_intermediate_size": draw(st.integers(1, 9)), "head_dim": 8 * draw(st.integers(1, 3))}
    return some(draw, fields | deltas(draw) | linear_layers(draw, fields), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = routed(grouped(of), of.more, "num_experts", "moe_intermediate_size")
    config |= {"shared_expert_intermediate_size": of.more[3]}
    return sized_deltas(of, config, {**sizes, "Fs": of.more[3], "U": 1})
