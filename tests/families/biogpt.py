"""BioGPT: learned positions with two rows in front, scaled rows of tokens."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WIDTH, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "biogpt", "vocab_size": 449, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 37, "pad_token_id": 0,
}  # fmt: skip
LOGITS = {"": TINY, "not scaled": {**TINY, "scale_embedding": False, "hidden_act": "relu"}}
SILENT = {"layerdrop": 0.1}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = of_whole_heads(draw) | {"intermediate_size": draw(WIDTH), "pad_token_id": 0}
    return some(draw, fields, scale_embedding=ON, max_position_embeddings=st.integers(25, 40))


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, max_position_embeddings=of.P, tie_word_embeddings=of.on[0])
    return config, {**sizes, "P": of.P + 2}  # two rows in front
