"""PLaMo 3: run by Gemma 3's class, whose token rows are scaled."""

from hypothesis import strategies as st

from tests.families._drawing import WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "plamo3", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 63,
    "window_size": 5, "sliding_window_pattern": 3,
}  # fmt: skip
SILENT = {"interleaved_sliding_window": [5, 5, None, 5]}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default
RUN_BY = "Gemma3"


def drawn(draw: Draw) -> Fields:
    fields = {**llama_like(draw, null_kv=False), "window_size": draw(WINDOW)}
    return some(draw, fields, sliding_window_pattern=st.integers(1, 4))


def sized(of: Distinct) -> Sized:
    return grouped(of, sliding_window_pattern=1)
