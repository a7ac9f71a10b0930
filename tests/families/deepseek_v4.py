from tests.families._configs import SLIDING, family

# fmt: off
family("deepseek_v4", vocab_size=173, hidden_size=52, num_hidden_layers=3, num_attention_heads=66, head_dim=22,
    qk_rope_head_dim=8, q_lora_rank=31, o_groups=6, o_lora_rank=17, sliding_window=7,
    layer_types=[SLIDING, "compressed_sparse_attention", "heavily_compressed_attention"],
    compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}, index_n_heads=14,
    index_head_dim=15, index_topk=10, hc_mult=5, moe_intermediate_size=37, n_routed_experts=19, num_experts_per_tok=16,
    max_position_embeddings=109, hc_sinkhorn_iters=3, num_hash_layers=1,
    LOGITS={
        "": {"num_experts_per_tok": 19, "swiglu_limit": 0.4},
        "of other scores": {"index_topk": 2, "hc_mult": 2, "num_hash_layers": 0, "scoring_func": "sigmoid"},
    },
    REQUIRED={
        "num_hidden_layers": 3, "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention", SLIDING],
        "n_routed_experts": 8,
    },
    SILENT={"num_nextn_predict_layers": 2, "attention_dropout": 0.1})
