"""Qwen3: norms of queries and keys; windows, listed layer by layer or from a layer up."""

from tests.families._drawing import ON, PLAIN, Draw, Fields, llama_like, qwen_windows, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "qwen3", "vocab_size": 79, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 3, "head_dim": 14, "intermediate_size": 97, "max_position_embeddings": 43,
    "attention_bias": True,
}  # fmt: skip
VARIANTS = {
    "windows listed": {
        **TINY, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}  # fmt: skip
LOGITS = {"": TINY, **VARIANTS}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    return qwen_windows(draw, some(draw, llama_like(draw), attention_bias=ON))


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1])
