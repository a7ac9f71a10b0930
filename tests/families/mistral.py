from tests.families._configs import FULL, GROUPED, HEADS, PLAIN, SLIDING, family, of_every_expert

GROWING = {
    "rope_type": "default", "rope_theta": 700.0, "llama_4_scaling_beta": 0.4, "original_max_position_embeddings": 6,
}  # fmt: skip
"""Queries that grow within the few positions that are asked for."""

# fmt: off
family("mistral", GROUPED, vocab_size=101, hidden_size=32, num_attention_heads=8, head_dim=6, intermediate_size=107,
    max_position_embeddings=59, sliding_window=None, COMPARED={"windowed": {"sliding_window": 5}},
    REQUIRED={**PLAIN, "sliding_window": None})
family("mixtral", GROUPED, intermediate_size=37, vocab_size=103, max_position_embeddings=59, num_local_experts=7,
    num_experts_per_tok=4, sliding_window=5, LOGITS=of_every_expert(num_experts_per_tok=7), REQUIRED=PLAIN)
# Without head_dim, Ministral's class does not run.
family("ministral", GROUPED, vocab_size=379, max_position_embeddings=113, sliding_window=5, layer_types=[SLIDING, FULL],
    LOGITS={"windowed": {"layer_types": None}}, REQUIRED={"num_hidden_layers": 2, "head_dim": 128})
family("ministral3", GROUPED, vocab_size=181, max_position_embeddings=35, sliding_window=5, pad_token_id=0,
    LOGITS={
        "": None,
        "windowed": {"rope_parameters": GROWING},
        "growing": {"OF": "windowed", "sliding_window": None},
    })
family("starcoder2", GROUPED, vocab_size=283, max_position_embeddings=71, sliding_window=5,
    LOGITS={"without biases": {"sliding_window": None, "use_bias": False}}, REQUIRED=HEADS)
