"""DistilBERT: an encoder by its own names of sizes, without segments."""

from hypothesis import strategies as st

from tests.families._drawing import VOCAB, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "distilbert", "vocab_size": 163, "dim": 60, "n_layers": 2, "n_heads": 6, "hidden_dim": 77,
    "max_position_embeddings": 43,
}  # fmt: skip
LOGITS = {"": TINY, "relu": {**TINY, "activation": "relu"}}
REQUIRED = {"vocab_size": 37, "dim": 128, "n_layers": 2, "n_heads": 4}
SILENT = {"intermediate_size": 77, "tie_weights_": True}


def drawn(draw: Draw) -> Fields:
    drawn = {**without(of_whole_heads(draw), "tie_word_embeddings"), "hidden_dim": draw(WIDTH)}
    names = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    fields = {names.get(name, name) if draw(st.booleans()) else name: value for name, value in drawn.items()}
    return some(draw, fields, vocab_size=VOCAB, max_position_embeddings=st.integers(25, 40))


def sized(of: Distinct) -> Sized:
    config, sizes = of_heads(of, "vocab_size dim n_layers n_heads hidden_dim", max_position_embeddings=of.P)
    return config, {**sizes, "Dt": sizes["D"], "T": of.S, "P": of.P}
