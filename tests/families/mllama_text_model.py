"""Llama 3.2 Vision's language model: blocks of self-attention, and some that attend to an image's states."""

from hypothesis import strategies as st

from tests.families._drawing import PLAIN, Draw, Fields, llama_like, some, without
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "mllama_text_model", "vocab_size": 61, "hidden_size": 60, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53,
    "cross_attention_layers": [1, 3], "pad_token_id": 0,
}  # fmt: skip
VARIANTS = {"without an image": {**TINY, "cross_attention_layers": []}}
SILENT = {"cross_attention_layers": [1, 3, 8]}
REQUIRED = {**PLAIN, "num_hidden_layers": 5, "pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    """The class counts the past in its first layer."""
    fields = without(llama_like(draw, null_kv=False, head_dim=False), "tie_word_embeddings")
    return some(draw, {**fields, "pad_token_id": 0}, cross_attention_layers=st.lists(st.integers(1, 5)))


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(
        of,
        intermediate_size=of.F,
        num_attention_heads=of.K * of.G,
        num_key_value_heads=of.K,
        cross_attention_layers=[],
        tie_word_embeddings=False,
    )
    return config, {**sizes, "Vr": sizes["V"] + 8}
