from tests.families._configs import ABSENT, FULL, GROUPED, SLIDING, family, of_dense_layers

# fmt: off
LFM2 = family("lfm2", GROUPED, vocab_size=211, num_hidden_layers=4, head_dim=20, intermediate_size=97,
    max_position_embeddings=103, block_multiple_of=13, block_ffn_dim_multiplier=1.1, conv_L_cache=5, conv_bias=True,
    layer_types=["conv", FULL, "conv", "conv"],
    LOGITS={
        "of one token's convolution": {"conv_L_cache": 1, "conv_bias": False},
        "of attention alone": {"layer_types": None, "block_auto_adjust_ff_dim": False},
    }, REQUIRED={"num_hidden_layers": 3})
family("lfm2_moe", LFM2, moe_intermediate_size=37, num_experts=7, num_experts_per_tok=4, num_dense_layers=1,
    block_multiple_of=ABSENT, block_ffn_dim_multiplier=ABSENT, LOGITS=of_dense_layers(num_dense_layers=4),
    REQUIRED={"num_hidden_layers": 3, "layer_types": ["conv", FULL, "conv"], "num_dense_layers": 1},
    SILENT={"use_expert_bias": True, "norm_topk_prob": False})
family("lfm3", GROUPED, num_hidden_layers=4, intermediate_size=97, head_dim=20, vocab_size=211,
    max_position_embeddings=103, conv_L_cache=5, conv_bias=True, attention_bias=True, sliding_window=7,
    layer_types=["conv", FULL, SLIDING, "conv"], pad_token_id=0,
    LOGITS={"without gates and norms": {"use_attention_gate": False, "use_sandwich_norm": False}},
    REQUIRED={"num_hidden_layers": 3})
