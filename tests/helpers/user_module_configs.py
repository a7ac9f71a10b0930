"""Configs of the models in user_modules.py."""

from typing import Any

GPT2: dict[str, Any] = {
    **{"model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_layer": 3, "n_inner": 190},
    **{"vocab_size": 101, "n_positions": 64},
}
LLAMA: dict[str, Any] = {
    **{"model_type": "llama", "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10},
    **{"intermediate_size": 112, "num_hidden_layers": 3, "vocab_size": 101, "max_position_embeddings": 64},
    **{"tie_word_embeddings": False, "rms_norm_eps": 1e-5},
}
