from tests.families._configs import ABSENT, FULL, GROUPED, PLAIN, SLIDING, family

# fmt: off
family("gemma", GROUPED, hidden_size=30, intermediate_size=101, head_dim=8, vocab_size=67, max_position_embeddings=51,
    attention_bias=True, hidden_act="gelu", REQUIRED=PLAIN)
GEMMA2 = family("gemma2", GROUPED, num_hidden_layers=3, vocab_size=113, max_position_embeddings=57, sliding_window=5,
    query_pre_attn_scalar=12, LOGITS={"unbounded": {"attn_logit_softcapping": None, "final_logit_softcapping": None}},
    REQUIRED=PLAIN)
GEMMA3 = family("gemma3_text", GEMMA2, num_hidden_layers=4, vocab_size=127, max_position_embeddings=63,
    sliding_window_pattern=3, query_pre_attn_scalar=14, LOGITS={"both ways": {"use_bidirectional_attention": True}})
# More layers add up the class's roundings.
family("vaultgemma", GEMMA2.TINY, vocab_size=283, max_position_embeddings=71,
    LOGITS={
        "": {"num_hidden_layers": 2},
        "unbounded": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    })
GEMMA3N = family("gemma3n_text", GROUPED, vocab_size=127, hidden_size=50, num_hidden_layers=6, num_attention_heads=10,
    head_dim=14, max_position_embeddings=63, sliding_window=7, num_kv_shared_layers=3,
    layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL, FULL],
    activation_sparsity_pattern=[0.75, 0.75, 0.0, 0.0, 0.0, 0.0], vocab_size_per_layer_input=131,
    hidden_size_per_layer_input=17, laurel_rank=29, attention_bias=True,
    COMPARED={
        "unscaled, of several widths": {
            "intermediate_size": [71, 71, 71, 73, 71, 71], "num_kv_shared_layers": 0, "altup_correct_scale": False,
        },
    }, REQUIRED={"num_hidden_layers": 20, "hidden_size": 128})
family("gemma4_text", GEMMA3N.TINY, hidden_size=48, num_attention_heads=6, head_dim=10, global_head_dim=14,
    sliding_window=5, use_double_wide_mlp=True, activation_sparsity_pattern=ABSENT, laurel_rank=ABSENT,
    COMPARED={
        "keys as values": {
            "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_bias": False,
            "attention_k_eq_v": True, "num_global_key_value_heads": 3, "final_logit_softcapping": 3.0,
        },
    },
    VARIANTS={
        "moe": {
            "OF": "keys as values", "enable_moe_block": True, "num_experts": 8, "top_k_experts": 4,
            "moe_intermediate_size": 37,
        },
        "layers of their own": {
            "OF": "keys as values",
            "per_layer_config": {
                "1": {"head_dim": 18, "num_key_value_heads": 3}, "04": {"head_dim": 18, "num_key_value_heads": 3},
                "5": {"head_dim": 18, "num_key_value_heads": 3},
            },
        },
    }, LOGITS={"of every expert": {"OF": "moe", "top_k_experts": 8}})
family("embedding_gemma2_text", GROUPED, num_hidden_layers=3, vocab_size=127, global_head_dim=14,
    num_global_key_value_heads=3, max_position_embeddings=63, sliding_window=2, layer_types=[SLIDING, FULL, FULL],
    hidden_size_per_layer_input=17, attention_bias=True, embedding_dim=29)
