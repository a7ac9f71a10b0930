from tests.families._configs import ABSENT, FULL, GROUPED, SIZES, SLIDING, family

# fmt: off
family("cohere", GROUPED, vocab_size=271, max_position_embeddings=65, attention_bias=True, logit_scale=0.3,
    COMPARED={"normed": {"use_qk_norm": True}})
COHERE2 = family("cohere2", SIZES, vocab_size=277, hidden_size=60, num_hidden_layers=3, num_key_value_heads=2,
    max_position_embeddings=67, attention_bias=True, logit_scale=0.3, sliding_window=5, sliding_window_pattern=2)
family("cohere2_moe", COHERE2, vocab_size=509, num_hidden_layers=4, head_dim=14, intermediate_size=37,
    first_k_dense_replace=2, prefix_dense_intermediate_size=71, prefix_dense_sliding_window_pattern=2, num_experts=7,
    num_experts_per_tok=4, num_shared_experts=3, shared_expert_combination_strategy="sum",
    LOGITS={
        "": {"first_k_dense_replace": 4},
        "of every expert": {"num_experts_per_tok": 7},
        "with sigmoids and RMSNorm": {
            "num_experts_per_tok": 7, "expert_selection_fn": "sigmoid", "rms_norm_eps": 0.001,
        },
        "rotated in full layers": {
            "prefix_dense_sliding_window_pattern": 1, "num_experts_per_tok": 7, "num_shared_experts": 0,
        },
    })
family("cohere_compass_text", COHERE2, layer_types=[FULL, SLIDING, SLIDING],
    rope_parameters={FULL: None, SLIDING: {"rope_type": "default", "rope_theta": 1e4}}, sliding_window_pattern=ABSENT,
    LOGITS={
        "all rotated": {
            "logit_scale": None,
            "layer_types": None,
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": 1e4}, SLIDING: {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    }, REQUIRED={"num_hidden_layers": 2, "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1e4}}})
