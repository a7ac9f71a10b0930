"""Ministral: Mistral's block, with the window in the layers that are named."""

from tests.families._drawing import EVEN, WINDOW, Draw, Fields, layer_types, llama_like
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "ministral", "vocab_size": 379, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 113,
    "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
LOGITS = {"": TINY, "windowed": {**TINY, "layer_types": None}}
REQUIRED = {"num_hidden_layers": 2, "head_dim": 128}  # without it the class does not run


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | {"head_dim": draw(EVEN)}
    return layer_types(draw, fields | {"sliding_window": draw(WINDOW)})


def sized(of: Distinct) -> Sized:
    return grouped(of, layer_types=["full_attention"] * of.L)
