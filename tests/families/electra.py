"""ELECTRA: an encoder with tables narrower than the model, or as wide."""

from tests.families import bert
from tests.families._drawing import LAYERS, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "electra", "vocab_size": 151, "embedding_size": 31, "hidden_size": 102, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 83, "max_position_embeddings": 49, "type_vocab_size": 3,
}  # fmt: skip
VARIANTS = {"of wide tables": {**TINY, "embedding_size": 102}}
LOGITS = {"": TINY, "of wide tables": {**VARIANTS["of wide tables"], "hidden_act": "relu"}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    fields = bert.drawn(draw)
    return some(draw, fields, embedding_size=WIDTH | WIDTH.map(lambda _: fields["hidden_size"]))


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    width = of.more[0]
    return {**config, "embedding_size": width}, {
        **{letter: size for letter, size in sizes.items() if letter != "Dt"},
        "De": width,
    }
