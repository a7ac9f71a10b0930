"""Qwen2: biases on q, k and v; a window in the upper layers where it is switched on."""

from tests.families._drawing import PLAIN, Draw, Fields, llama_like, qwen_windows
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "qwen2", "vocab_size": 73, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 10,
    "num_key_value_heads": 5, "head_dim": 6, "intermediate_size": 79, "max_position_embeddings": 47,
    "tie_word_embeddings": True,
}  # fmt: skip
VARIANTS = {
    "windowed": {
        **TINY, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1,
    },
}  # fmt: skip
LOGITS = {
    "": TINY,
    "untied": {**TINY, "tie_word_embeddings": False, "rope_theta": 1e6},
    "windowed": VARIANTS["windowed"],
}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    return qwen_windows(draw, llama_like(draw))


def sized(of: Distinct) -> Sized:
    return grouped(of)
