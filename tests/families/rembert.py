"""RemBERT: an encoder with narrow tables in front, and a wide one of the head's own."""

from tests.families import bert
from tests.families._drawing import LAYERS, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "rembert", "vocab_size": 151, "input_embedding_size": 31, "output_embedding_size": 37,
    "hidden_size": 102, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 83,
    "max_position_embeddings": 49, "type_vocab_size": 3,
}  # fmt: skip
LOGITS = {"": TINY, "relu": {**TINY, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    return some(draw, bert.drawn(draw), input_embedding_size=WIDTH, output_embedding_size=WIDTH)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    narrow, wide = of.more[:2]
    sizes = {letter: size for letter, size in sizes.items() if letter != "Dt"}
    return {**config, "input_embedding_size": narrow, "output_embedding_size": wide}, {
        **sizes,
        "De": narrow,
        "Dd": wide,
    }
