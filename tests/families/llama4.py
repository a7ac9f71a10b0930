from tests.families._configs import FULL, GROUPED, family

# fmt: off
# The class runs all experts, and weighs what they read. Llama Guard 4 has none.
family("llama4_text", GROUPED, num_hidden_layers=5, intermediate_size=37, vocab_size=193, intermediate_size_mlp=71,
    max_position_embeddings=89, attention_chunk_size=7, num_local_experts=8, num_experts_per_tok=5,
    interleave_moe_layer_step=2, floor_scale=4, attention_bias=True,
    VARIANTS={
        "without experts": {
            "num_local_experts": 0, "num_experts_per_tok": 0, "interleave_moe_layer_step": 0, "moe_layers": [],
        },
    },
    LOGITS={
        "": {"moe_layers": []},
        "without norms": {
            "attention_chunk_size": 11, "moe_layers": [], "use_qk_norm": False, "no_rope_layers": [1, 0, 1, 0, 1],
        },
        "all rotated": {
            "moe_layers": [], "no_rope_layers": [1] * 5,
            "layer_types": [FULL, "chunked_attention", "chunked_attention", "chunked_attention", "chunked_attention"],
        },
    })
MUSE_GLIMMER = family("muse_glimmer_text", GROUPED, num_hidden_layers=4, vocab_size=467, max_position_embeddings=39,
    attention_bias=True, sliding_window=7,
    LOGITS={"all rotated": {"attention_bias": False, "layer_rope_theta": [5e5] * 4}})
family("muse_spark_text", MUSE_GLIMMER, vocab_size=499, pad_token_id=0, moe_intermediate_size=37, num_local_experts=15,
    num_experts_per_tok=4, moe_hidden_size=26, mlp_layer_types=["dense", "sparse", "sparse", "dense"],
    LOGITS={
        "": {"mlp_layer_types": ["dense"] * 4},
        "all rotated": {"layer_rope_theta": [5e5] * 4, "residual_gate_temperature": 0.7},
    }, REQUIRED={"num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    SILENT={"routed_scaling_factor": 2.0, "residual_gate_temperature": 0.5})
