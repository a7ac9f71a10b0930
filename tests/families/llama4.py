"""Test configs of the llama4 lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import (
    ON,
    SMALL,
    WIDTH,
    WINDOW,
    Draw,
    Fields,
    experts,
    layer_types,
    llama_like,
    some,
    without,
)


class Llama4:
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
        "all rotated": {
            **DENSE,
            "no_rope_layers": [1] * 5,
            "layer_types": ["full_attention", *["chunked_attention"] * 4],
        },
    }

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


class MuseGlimmer:
    TINY = {
        "model_type": "muse_glimmer_text", "vocab_size": 467, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 39, "attention_bias": True, "sliding_window": 7,
    }  # fmt: skip
    LOGITS = {"": TINY, "all rotated": {**TINY, "layer_rope_theta": [5e5] * 4, "attention_bias": False}}

    def drawn(draw: Draw) -> Fields:
        """Heads of a size of their own, which the class wants to divide the hidden size by number."""
        fields = llama_like(draw, null_kv=False) | {"sliding_window": draw(WINDOW)}
        layers = fields["num_hidden_layers"]
        bases = st.none() | st.lists(st.sampled_from([0, 10000.0]), min_size=layers, max_size=layers)
        return layer_types(draw, some(draw, fields, attention_bias=ON, layer_rope_theta=bases))


class MuseSpark:
    TINY = {
        **MuseGlimmer.TINY, "model_type": "muse_spark_text", "vocab_size": 499, "pad_token_id": 0,
        "moe_intermediate_size": 37, "num_local_experts": 15, "num_experts_per_tok": 4, "moe_hidden_size": 26,
        "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    }  # fmt: skip
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 4}  # the class weighs experts by sigmoids
    LOGITS = {"": DENSE, "all rotated": {**DENSE, "layer_rope_theta": [5e5] * 4, "residual_gate_temperature": 0.7}}
    SILENT = {"routed_scaling_factor": 2.0, "residual_gate_temperature": 0.5}
    REQUIRED = {"num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2}

    def drawn(draw: Draw) -> Fields:
        fields = without(MuseGlimmer.drawn(draw), "tie_word_embeddings") | experts(draw, "num_local_experts")
        fields |= {"moe_intermediate_size": draw(SMALL), "moe_hidden_size": draw(SMALL), "pad_token_id": 0}
        layers = fields["num_hidden_layers"]
        kinds = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
        return some(draw, fields, mlp_layer_types=st.none() | kinds)
