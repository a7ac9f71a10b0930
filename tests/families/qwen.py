from tests.families._configs import (
    ABSENT,
    FULL,
    GROUPED,
    PLAIN,
    SIZES,
    SLIDING,
    family,
    of_dense_layers,
    of_every_expert,
)

# fmt: off
# Qwen2's class rotates whole heads.
family("qwen", SIZES, vocab_size=433, hidden_size=60, kv_channels=10, intermediate_size=166, max_position_embeddings=43,
    no_bias=True, rotary_pct=0.8, RUN_BY="Qwen2", LOGITS={"": {"rotary_pct": 1.0}},
    SILENT={"seq_length": 43, "rotary_emb_base": 10000})
QWEN2 = family("qwen2", SIZES, vocab_size=73, hidden_size=40, num_attention_heads=10, num_key_value_heads=5, head_dim=6,
    intermediate_size=79, max_position_embeddings=47, tie_word_embeddings=True,
    COMPARED={
        "windowed": {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    }, LOGITS={"untied": {"tie_word_embeddings": False, "rope_theta": 1e6}}, REQUIRED=PLAIN)
family("qwen2_moe", GROUPED, num_hidden_layers=4, vocab_size=107, max_position_embeddings=53, moe_intermediate_size=37,
    shared_expert_intermediate_size=29, num_experts=7, num_experts_per_tok=4, decoder_sparse_step=2,
    mlp_only_layers=[3], use_sliding_window=True, sliding_window=5, max_window_layers=3,
    LOGITS=of_every_expert(num_experts_per_tok=7), REQUIRED=PLAIN)
family("qwen3", SIZES, vocab_size=79, hidden_size=36, num_key_value_heads=3, head_dim=14, intermediate_size=97,
    max_position_embeddings=43, attention_bias=True,
    COMPARED={
        "windows listed": {
            "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7,
            "layer_types": [SLIDING, FULL, SLIDING],
        },
    }, REQUIRED=PLAIN)
family("qwen3_moe", GROUPED, num_hidden_layers=3, vocab_size=109, max_position_embeddings=61, moe_intermediate_size=37,
    num_experts=7, num_experts_per_tok=4, mlp_only_layers=[1], attention_bias=True,
    LOGITS=of_every_expert(num_experts_per_tok=7, norm_topk_prob=True), REQUIRED=PLAIN)
QWEN3_NEXT = family("qwen3_next", GROUPED, hidden_size=44, num_hidden_layers=4, head_dim=32, vocab_size=107,
    max_position_embeddings=53, moe_intermediate_size=37, shared_expert_intermediate_size=29, num_experts=7,
    num_experts_per_tok=4, mlp_only_layers=[1], full_attention_interval=3, linear_conv_kernel_dim=5,
    linear_key_head_dim=10, linear_value_head_dim=11, linear_num_key_heads=3, linear_num_value_heads=6,
    BY_KEY_HEAD=True, VARIANTS={"odd heads": {"head_dim": 17}},
    LOGITS={
        "": None,
        "of every expert": {"num_experts_per_tok": 7},
        "of dense layers": {"mlp_only_layers": [0, 1, 2, 3], "linear_conv_kernel_dim": 1, "attention_bias": True},
    }, REQUIRED={"vocab_size": 37, "num_hidden_layers": 4})
family("qwen3_5_text", GROUPED, hidden_size=44, num_hidden_layers=4, head_dim=32, vocab_size=107,
    max_position_embeddings=53, full_attention_interval=3, linear_conv_kernel_dim=5, linear_key_head_dim=10,
    linear_value_head_dim=11, linear_num_key_heads=3, linear_num_value_heads=6, attention_bias=True,
    LOGITS={"of one value head per key head": {"linear_num_value_heads": 3}},
    REQUIRED={"vocab_size": 37, "num_hidden_layers": 4},
    SILENT={"attn_output_gate": True, "mtp_num_hidden_layers": 1})
family("qwen3_5_moe_text", QWEN3_NEXT.TINY, intermediate_size=ABSENT, mlp_only_layers=ABSENT,
    LOGITS=of_every_expert(num_experts_per_tok=7), REQUIRED={"vocab_size": 37, "num_hidden_layers": 4},
    SILENT={"attn_output_gate": True, "mtp_num_hidden_layers": 1})
family("mimo", QWEN2, vocab_size=227, RUN_BY="Qwen2", SILENT={"num_nextn_predict_layers": 1})
family("mimo_v2_flash", GROUPED, num_hidden_layers=3, num_attention_heads=12, head_dim=30, vocab_size=179,
    v_head_dim=22, max_position_embeddings=83, attention_bias=True, moe_intermediate_size=37, n_routed_experts=8,
    num_experts_per_tok=5, sliding_window=7, LOGITS=of_dense_layers(mlp_layer_types=["dense"] * 3))
family("mellum", GROUPED, num_hidden_layers=3, vocab_size=431, max_position_embeddings=113, moe_intermediate_size=37,
    num_experts=7, num_experts_per_tok=4, sliding_window=5, layer_types=[SLIDING, FULL, SLIDING],
    mlp_layer_types=["dense", "sparse", "sparse"], attention_bias=True,
    rope_parameters={
        FULL: {"rope_type": "default", "rope_theta": 700.0}, SLIDING: {"rope_type": "default", "rope_theta": 100.0},
    },
    LOGITS=of_every_expert(num_experts_per_tok=7))
