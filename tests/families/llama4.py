"""Test configs of the llama4 lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED


class Llama4:
    TINY = {
        **GROUPED, "model_type": "llama4_text", "vocab_size": 193, "num_hidden_layers": 5, "intermediate_size": 37,
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


class MuseGlimmer:
    TINY = {
        **GROUPED, "model_type": "muse_glimmer_text", "vocab_size": 467, "num_hidden_layers": 4,
        "max_position_embeddings": 39, "attention_bias": True, "sliding_window": 7,
    }  # fmt: skip
    LOGITS = {"": TINY, "all rotated": {**TINY, "layer_rope_theta": [5e5] * 4, "attention_bias": False}}


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
