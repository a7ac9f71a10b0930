from tests.families._configs import GROUPED, SIZES, family, of_every_expert

# fmt: off
family("ernie4_5", GROUPED, vocab_size=199, max_position_embeddings=43, use_bias=True,
    LOGITS={"untied": {"use_bias": False, "tie_word_embeddings": False}})
ERNIE4_5_MOE = family("ernie4_5_moe", SIZES, num_hidden_layers=3, vocab_size=173, num_key_value_heads=2,
    max_position_embeddings=61, use_bias=True, moe_intermediate_size=37, moe_num_experts=10, moe_num_shared_experts=3,
    moe_k=4, LOGITS=of_every_expert(moe_k=10))
family("ernie4_5_vl_moe_text", ERNIE4_5_MOE, moe_intermediate_size=[37, 23],
    rope_parameters={"rope_theta": 5e5, "rope_type": "default", "mrope_section": [1, 1, 2]},
    LOGITS=of_every_expert(moe_k=10))
