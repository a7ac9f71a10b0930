from tests.families._configs import GROUPED, SIZES, family

# fmt: off
# The class has a module for the norm of each head, where Cohere's are one: no logits of "normed".
family("stablelm", SIZES, vocab_size=293, num_key_value_heads=2, max_position_embeddings=73, use_qkv_bias=True,
    partial_rotary_factor=0.5, COMPARED={"parallel": {"use_qkv_bias": False, "use_parallel_residual": True},
        "odd heads": {"hidden_size": 54}},
    VARIANTS={"normed": {"qk_layernorm": True}})
family("persimmon", SIZES, hidden_size=120, vocab_size=347, max_position_embeddings=97, BY_HEAD=True,
    COMPARED={"without norms of heads": {"qk_layernorm": False}, "odd heads": {"hidden_size": 54}})
family("plamo3", GROUPED, num_hidden_layers=4, vocab_size=127, max_position_embeddings=63, window_size=5,
    sliding_window_pattern=3, RUN_BY="Gemma3", SILENT={"interleaved_sliding_window": [5, 5, None, 5]})
