"""BERT's body as a decoder, or as an encoder without segments."""

from tests.families import bert
from tests.families._drawing import ON, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "bert-generation", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "is_decoder": True,
}  # fmt: skip
VARIANTS = {"as an encoder": {**TINY, "is_decoder": False}}
LOGITS = {"": TINY, "relu": {**VARIANTS["as an encoder"], "hidden_act": "relu", "layer_norm_eps": 1e-3}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, without(bert.drawn(draw), "type_vocab_size"), is_decoder=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    sizes = {letter: size for letter, size in sizes.items() if letter not in ("Vs", "Dt")}
    return {**without(config, "type_vocab_size"), "is_decoder": True}, {**sizes, "T": of.T}
