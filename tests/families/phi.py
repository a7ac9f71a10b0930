from tests.families._configs import GROUPED, HEADS, SIZES, family

# fmt: off
family("phi", SIZES, vocab_size=131, num_key_value_heads=2, max_position_embeddings=49, qk_layernorm=True,
    LOGITS={"plain": {"qk_layernorm": False, "partial_rotary_factor": 1.0}}, REQUIRED=HEADS)
# Its class's token of padding is the 32,000th.
family("phi3", GROUPED, vocab_size=137, max_position_embeddings=55, sliding_window=5, partial_rotary_factor=0.8,
    pad_token_id=0, COMPARED={"odd heads": {"head_dim": 13}},
    LOGITS={"without a window": {"sliding_window": None, "partial_rotary_factor": 1.0}},
    REQUIRED={"vocab_size": 32064, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4})
family("phimoe", GROUPED, num_attention_heads=12, intermediate_size=37, num_key_value_heads=4, vocab_size=269,
    max_position_embeddings=63, attention_bias=True, lm_head_bias=True, num_local_experts=7, num_experts_per_tok=2,
    sliding_window=5, LOGITS=None)
