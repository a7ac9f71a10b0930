from tests.families._configs import FULL, GROUPED, family, of_dense_layers

# fmt: off
family("exaone", vocab_size=199, hidden_size=60, num_layers=2, num_attention_heads=6, num_key_value_heads=3,
    intermediate_size=73, max_position_embeddings=43, tie_word_embeddings=False, activation_function="silu",
    RUN_BY="Llama")
EXAONE4 = family("exaone4", GROUPED, num_hidden_layers=3, vocab_size=281, max_position_embeddings=69, sliding_window=5,
    sliding_window_pattern=2, SILENT={"mtp_share_layers": True, "_num_mtp_layers": 1},
    COMPARED={"without windows": {"sliding_window": None, "layer_types": [FULL] * 3}})
family("exaone_moe", EXAONE4, vocab_size=397, max_position_embeddings=119, moe_intermediate_size=37, num_experts=7,
    num_shared_experts=2, num_experts_per_tok=4, LOGITS=of_dense_layers(first_k_dense_replace=3))
