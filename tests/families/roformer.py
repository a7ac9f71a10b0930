"""RoFormer: an encoder whose heads turn by a stored table, with tables narrower than the model or as wide."""

from tests.families import electra
from tests.families._drawing import EVEN, LAYERS, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "roformer", "vocab_size": 151, "embedding_size": 31, "hidden_size": 84, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 83, "max_position_embeddings": 49, "type_vocab_size": 3,
}  # fmt: skip
VARIANTS = {"of wide tables": {**TINY, "embedding_size": None}}
LOGITS = {"": TINY, "of wide tables": {**VARIANTS["of wide tables"], "hidden_act": "relu"}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    fields = {**without(of_whole_heads(draw, EVEN), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
    return some(draw, fields, embedding_size=WIDTH | WIDTH.map(lambda _: fields["hidden_size"]))


def sized(of: Distinct) -> Sized:
    return electra.sized(of)
