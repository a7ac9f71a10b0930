from tests.families._configs import ABSENT, FULL, GROUPED, SIZES, SLIDING, family, of_dense_layers, of_every_expert

ROPE = {
    FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
}

# fmt: off
family("afmoe", GROUPED, num_hidden_layers=4, vocab_size=163, max_position_embeddings=79, attention_bias=True,
    moe_intermediate_size=37, num_experts=8, num_experts_per_tok=4, num_shared_experts=3, num_dense_layers=1,
    sliding_window=5, global_attn_every_n_layers=3, mup_enabled=True, LOGITS=of_dense_layers(num_dense_layers=4))
family("laguna", GROUPED, vocab_size=173, num_hidden_layers=3, head_dim=24, max_position_embeddings=83,
    moe_intermediate_size=37, shared_expert_intermediate_size=29, num_experts=16, num_experts_per_tok=4,
    sliding_window=7, attention_bias=True,
    rope_parameters=ROPE,
    layer_types=[FULL, SLIDING, SLIDING], num_attention_heads_per_layer=[6, 10, 10],
    VARIANTS={"a gate for each element": {"gating": "per-element"}},
    LOGITS={
        "": {"mlp_layer_types": ["dense"] * 3},
        "gated by elements": {"gating": "per-element"},
        "rotated by default": {"mlp_layer_types": ["dense"] * 3, "rope_parameters": None},
    })
family("step3p5", GROUPED, vocab_size=173, num_hidden_layers=4, pad_token_id=0, head_dim=24, max_position_embeddings=83,
    moe_intermediate_size=37, share_expert_dim=29, n_routed_experts=16, num_experts_per_tok=4, sliding_window=7,
    attention_bias=True, mlp_bias=True, layer_types=[FULL, SLIDING, SLIDING, FULL], num_sliding_attention_heads=10,
    rope_parameters=ROPE,
    moe_layers_enum="1,2,3",
    LOGITS={
        "": {"moe_layers_enum": ""},
        "with a list of angles": {
            "rope_parameters": None, "moe_layers_enum": "", "rope_theta": [5e5, 1e4, 1e4, 5e5],
            "partial_rotary_factors": [0.5, 1, 1, 0.5],
        },
    }, REQUIRED={"num_hidden_layers": 4, "sliding_window": 7})
KOLIBRI1 = family("kolibri1", GROUPED, vocab_size=167, num_hidden_layers=5, max_position_embeddings=89,
    moe_intermediate_size=37, shared_expert_intermediate_size=29, num_experts=8, num_experts_per_tok=4,
    sliding_window=7, intermediate_size=ABSENT, LOGITS=None)
family("flint", KOLIBRI1, num_hidden_layers=4, intermediate_size=71, vocab_size=149, max_position_embeddings=83,
    attention_bias=True, mlp_only_layers=[0], LOGITS=of_dense_layers(mlp_only_layers=[0, 1, 2, 3]),
    REQUIRED={"num_hidden_layers": 4})
family("grok-1", SIZES, vocab_size=443, hidden_size=60, num_key_value_heads=2, intermediate_size=37, num_experts=5,
    num_experts_per_tok=4, max_position_embeddings=41, attn_output_multiplier=0.3, max_attn_value=30.0,
    embedding_multiplier_scale=7.7, output_multiplier_scale=0.6, VARIANTS={"untied": {"tie_word_embeddings": False}},
    LOGITS=None, SILENT={"router_aux_loss_coef": 0.001})
family("dbrx", vocab_size=499, d_model=60, n_layers=2, n_heads=6, max_seq_len=71,
    attn_config={"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 1e4},
    ffn_config={"ffn_hidden_size": 37, "moe_num_experts": 7, "moe_top_k": 4},
    LOGITS=of_every_expert(ffn_config={"ffn_hidden_size": 37, "moe_num_experts": 7, "moe_top_k": 7}),
    REQUIRED={"n_layers": 2, "attn_config": {"rope_theta": 5e5, "clip_qkv": 8}},
    SILENT={"attn_config": {"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 1e4, "attn_pdrop": 0.3}})
