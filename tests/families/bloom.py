"""BLOOM: ALiBi, a norm of the tokens, a network of four times the hidden size."""

from tests.families._drawing import ON, Draw, Fields, of_whole_heads
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "bloom", "vocab_size": 173, "hidden_size": 60, "n_layer": 2, "n_head": 6, "seq_length": 35,
}  # fmt: skip
LOGITS = {"": TINY, "of six heads untied": {**TINY, "tie_word_embeddings": False}}
CONTEXT = 2048
BY_HEAD = True
REQUIRED = {"vocab_size": 37, "hidden_size": 60, "n_layer": 2, "n_head": 6}


def drawn(draw: Draw) -> Fields:
    fields = of_whole_heads(draw)
    if draw(ON):  # as the published files spell them
        fields |= {"n_layer": fields.pop("num_hidden_layers"), "n_head": fields.pop("num_attention_heads")}
    return fields


def sized(of: Distinct) -> Sized:
    config, sizes = of_heads(of, "vocab_size hidden_size n_layer n_head", tie_word_embeddings=of.on[0])
    return config, {**sizes, "F": 4 * sizes["D"]}
