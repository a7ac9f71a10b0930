"""GTE: post-norm blocks with rotary positions and gated networks, biases on some products."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, LAYERS, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gte", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3, "pad_token_id": 0,
}  # fmt: skip
VARIANTS = {"without segments": {**TINY, "type_vocab_size": 0}}
LOGITS = {"": TINY, "without segments": {**VARIANTS["without segments"], "hidden_act": "relu"}}
SILENT = {"hidden_dropout_prob": 0.2, "classifier_dropout": 0.5}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    fields = {**without(of_whole_heads(draw, EVEN), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
    sizes = {"type_vocab_size": st.integers(0, 4), "max_position_embeddings": st.integers(25, 40)}
    return some(draw, {**fields, "pad_token_id": 0}, **sizes)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, max_position_embeddings=of.P, type_vocab_size=of.J)
    return config, {**sizes, "Dt": sizes["D"], "T": of.S, "Vs": of.J}
