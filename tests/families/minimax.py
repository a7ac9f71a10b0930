from tests.families._configs import ABSENT, FULL, GROUPED, LINEAR, SIZES, family, of_every_expert

# fmt: off
MINIMAX = family("minimax", GROUPED, vocab_size=103, hidden_size=50, num_hidden_layers=3, intermediate_size=37,
    max_position_embeddings=59, num_local_experts=7, num_experts_per_tok=4, layer_types=[LINEAR, FULL, LINEAR],
    block_size=12,
    LOGITS=of_every_expert(num_experts_per_tok=7, linear_attn_alpha_factor=1.5, linear_attn_beta_factor=0.5,
        full_attn_alpha_factor=0.75, mlp_beta_factor=1.25),
    REQUIRED={})
MINIMAX_M1 = family("minimax_m1", MINIMAX, attn_type_list=[0, 1, 0], layer_types=ABSENT, RUN_BY="MiniMax",
    LOGITS=of_every_expert(num_experts_per_tok=7, layernorm_mlp_alpha=1.5),
    REQUIRED={"attn_type_list": [0, 1] * 16})
family("minimax_text_01", MINIMAX_M1, LOGITS=of_every_expert(num_experts_per_tok=7))
family("minimax_m2", GROUPED, intermediate_size=37, head_dim=20, vocab_size=367, max_position_embeddings=107,
    rotary_dim=10, num_local_experts=7, num_experts_per_tok=4, VARIANTS={"odd heads": {"head_dim": 21}}, LOGITS=None)
family("minimax_m3_vl_text", SIZES, vocab_size=211, num_hidden_layers=3, num_attention_heads=12, num_key_value_heads=4,
    head_dim=20, intermediate_size=37, dense_intermediate_size=71, shared_intermediate_size=29,
    max_position_embeddings=103, num_local_experts=10, num_experts_per_tok=5,
    layer_types=[FULL, "minimax_m3_sparse", "minimax_m3_sparse"], mlp_layer_types=["dense", "sparse", "sparse"],
    index_n_heads=6, index_head_dim=14, index_block_size=5, index_topk_blocks=3,
    rope_parameters={"partial_rotary_factor": 0.4},
    VARIANTS={"odd heads": {"head_dim": 21}},
    LOGITS={
        "": {"mlp_layer_types": ["dense"] * 3},
        "without a block of its own": {"index_n_heads": 4, "index_local_blocks": 0},
    },
    REQUIRED={
        "num_hidden_layers": 2, "layer_types": [FULL, "minimax_m3_sparse"], "mlp_layer_types": ["dense", "sparse"],
    })
