"""Gemma 3's language model: windows in all layers but every few."""

from hypothesis import strategies as st

from tests.families import gemma2
from tests.families._drawing import PLAIN, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "gemma3_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
    "max_position_embeddings": 63, "sliding_window": 5, "sliding_window_pattern": 3, "query_pre_attn_scalar": 14,
}  # fmt: skip
LOGITS = {"": TINY, "both ways": {**TINY, "use_bidirectional_attention": True}}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    return some(draw, gemma2.drawn(draw), sliding_window_pattern=st.integers(1, 4))


def sized(of: Distinct) -> Sized:
    return grouped(of, layer_types=["full_attention"] * of.L)
