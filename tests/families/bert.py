"""BERT: an encoder alone, tables of positions and of token types, a head with a transform."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, SMALL, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "bert", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
}  # fmt: skip
LOGITS = {"": TINY, "relu": {**TINY, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    fields = {**without(of_whole_heads(draw), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
    return some(draw, fields, type_vocab_size=SMALL, max_position_embeddings=st.integers(25, 40))


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, max_position_embeddings=of.P, type_vocab_size=of.J)
    return config, {**sizes, "Dt": sizes["D"], "T": of.S, "P": of.P, "Vs": of.J}
