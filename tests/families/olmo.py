from tests.families._configs import FULL, GROUPED, LINEAR, PLAIN, SIZES, SLIDING, family, of_every_expert

# fmt: off
family("olmo", GROUPED, vocab_size=257, max_position_embeddings=59, attention_bias=True, clip_qkv=0.7,
    LOGITS={"unbounded": {"attention_bias": False, "clip_qkv": None}})
OLMO2 = family("olmo2", GROUPED, vocab_size=179, max_position_embeddings=33, attention_bias=True, REQUIRED=PLAIN)
family("olmo3", OLMO2, vocab_size=241, max_position_embeddings=55, sliding_window=5, layer_types=[SLIDING, FULL],
    LOGITS={"stretched": {"rope_theta": 700.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}})
family("olmoe", SIZES, vocab_size=263, hidden_size=60, num_key_value_heads=2, intermediate_size=37,
    max_position_embeddings=61, attention_bias=True, clip_qkv=0.7, num_experts=7, num_experts_per_tok=4,
    LOGITS=of_every_expert(num_experts_per_tok=7, norm_topk_prob=True))
family("olmo_hybrid", SIZES, pad_token_id=0, vocab_size=107, hidden_size=60, num_hidden_layers=4, num_key_value_heads=2,
    max_position_embeddings=53, attention_bias=True, linear_conv_kernel_dim=5, linear_key_head_dim=13,
    linear_value_head_dim=11, linear_num_key_heads=3, linear_num_value_heads=12,
    layer_types=[LINEAR, FULL, LINEAR, LINEAR],
    LOGITS={
        "unrotated": {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
        "of positive eigenvalues": {"linear_value_head_dim": None, "linear_allow_neg_eigval": False},
    }, REQUIRED={"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0})
family("flex_olmo", GROUPED, intermediate_size=37, vocab_size=383, max_position_embeddings=115, attention_bias=True,
    num_experts=7, num_experts_per_tok=4, pad_token_id=0, eos_token_id=1,
    LOGITS=of_every_expert(num_experts_per_tok=7, norm_topk_prob=True))
