"""Llama 4's language model: chunks, layers that are not rotated, experts in some layers beside a shared network."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WIDTH, WINDOW, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "llama4_text", "vocab_size": 193, "hidden_size": 48, "num_hidden_layers": 5,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
    "intermediate_size_mlp": 71, "max_position_embeddings": 89, "attention_chunk_size": 7, "num_local_experts": 8,
    "num_experts_per_tok": 5, "interleave_moe_layer_step": 2, "floor_scale": 4, "attention_bias": True,
}  # fmt: skip
DENSE = {**TINY, "moe_layers": []}  # the class runs all experts, and weighs what they read
NONE = {**DENSE, "num_local_experts": 0, "num_experts_per_tok": 0, "interleave_moe_layer_step": 0}
VARIANTS = {"without experts": NONE}  # Llama Guard 4
LOGITS = {
    "": DENSE,
    "without norms": {**DENSE, "use_qk_norm": False, "no_rope_layers": [1, 0, 1, 0, 1], "attention_chunk_size": 11},
    "all rotated": {**DENSE, "no_rope_layers": [1] * 5, "layer_types": ["full_attention", *["chunked_attention"] * 4]},
}
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    fields |= {"intermediate_size": draw(SMALL), "attention_chunk_size": draw(WINDOW)}
    layers = fields["num_hidden_layers"]
    numbers = st.lists(st.integers(0, layers - 1), unique=True)
    each = {"min_size": layers, "max_size": layers}
    return some(
        draw,
        fields,
        attention_bias=ON,
        intermediate_size_mlp=WIDTH,
        interleave_moe_layer_step=st.integers(1, 3),
        moe_layers=st.none() | numbers,
        no_rope_layer_interval=st.integers(1, 4),
        no_rope_layers=st.none() | st.just([]) | st.lists(st.integers(0, 1), **each),
        layer_types=st.none() | st.lists(st.sampled_from(["full_attention", "chunked_attention"]), **each),
        use_qk_norm=ON,
        attn_temperature_tuning=ON,
    )


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], no_rope_layers=[0] * of.L)
    A, E = sorted(of.more[:2])
    width = sizes.pop("F")
    return {**config, "num_local_experts": E, "num_experts_per_tok": A}, {**sizes, "A": A, "E": E, "Fe": width}
