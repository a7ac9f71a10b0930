"""Trinity (AFMoE): gated attention, rotated in windows alone; dense layers, then experts beside a shared network."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, WINDOW, Draw, Fields, experts, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "afmoe", "vocab_size": 163, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 79,
    "attention_bias": True, "moe_intermediate_size": 37, "num_experts": 8, "num_experts_per_tok": 4,
    "num_shared_experts": 3, "num_dense_layers": 1, "sliding_window": 5, "global_attn_every_n_layers": 3,
    "mup_enabled": True,
}  # fmt: skip
LOGITS = {"": {**TINY, "num_dense_layers": 4}}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False) | experts(draw, "num_experts")
    fields |= {"head_dim": draw(EVEN), "moe_intermediate_size": draw(SMALL), "sliding_window": draw(WINDOW)}
    optional = {"global_attn_every_n_layers": st.integers(1, 4), "num_shared_experts": st.integers(1, 3)}
    some(draw, fields, attention_bias=ON, num_dense_layers=st.integers(0, 4), mup_enabled=ON, **optional)
    return layer_types(draw, fields)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], num_dense_layers=0, global_attn_every_n_layers=1)
    config, sizes = routed((config, sizes), of.more, "num_experts", "moe_intermediate_size")
    return {**config, "num_shared_experts": 2}, {**sizes, "Fs": 2 * sizes["Fe"]}
