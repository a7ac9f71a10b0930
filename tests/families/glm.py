from tests.families._configs import ABSENT, GROUPED, family, of_dense_layers

# fmt: off
GLM = family("glm", GROUPED, head_dim=20, vocab_size=317, max_position_embeddings=91, pad_token_id=0,
    COMPARED={"odd heads": {"head_dim": 9}}, LOGITS={"whole": {"attention_bias": False, "partial_rotary_factor": 1.0}})
family("glm4", GLM, vocab_size=331)
# By default 4,096 / 96 is no whole number.
family("glm4_moe", GROUPED, num_hidden_layers=3, head_dim=20, vocab_size=359, max_position_embeddings=103,
    attention_bias=True, use_qk_norm=True, moe_intermediate_size=37, n_routed_experts=7, n_shared_experts=2,
    num_experts_per_tok=4, VARIANTS={"odd heads": {"head_dim": 9}}, LOGITS=of_dense_layers(first_k_dense_replace=3),
    REQUIRED={"num_hidden_layers": 2, "head_dim": 128})
family("solar_open", GROUPED, vocab_size=389, max_position_embeddings=117, attention_bias=True,
    moe_intermediate_size=37, n_routed_experts=7, n_shared_experts=2, num_experts_per_tok=4, intermediate_size=ABSENT,
    LOGITS=None)
