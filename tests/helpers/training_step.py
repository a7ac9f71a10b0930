"""What tests of training steps share."""

PAIRS_AND_OTHERS = ("albert", "bart", "falcon_h1", "lfm2", "mamba", "qwen3_5_text", "qwen3_next", "whisper")
"""Families whose step with adapters is not supported: convolutions, fused heads, shared layers, encoder–decoders."""
SMALL = {
    **{"model_type": "llama", "vocab_size": 640, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 200, "tie_word_embeddings": False},
}
