"""T5Gemma: two sides of Gemma 2's blocks, each of its own width."""

from hypothesis import strategies as st

from tests.families import gemma2
from tests.families._drawing import ON, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized, grouped

DECODER = {**without(gemma2.TINY, "model_type"), "num_hidden_layers": 2}
ENCODER = {**DECODER, "hidden_size": 42, "num_hidden_layers": 3, "intermediate_size": 67, "num_key_value_heads": 3}
TINY = {"model_type": "t5gemma", "vocab_size": 113, "encoder": ENCODER, "decoder": DECODER, "pad_token_id": 0}
UNBOUNDED = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
VARIANTS = {"untied, of one width": {**TINY, "encoder": DECODER, "tie_word_embeddings": False}}
LOGITS = {
    "": TINY,
    "unbounded": {**TINY, "encoder": {**ENCODER, **UNBOUNDED}, "decoder": {**DECODER, **UNBOUNDED}},
}
SILENT = {"initializer_range": 0.3}
CONTEXT = 8192
REQUIRED: Fields = {}


def drawn(draw: Draw) -> Fields:
    sides = {}
    for name in ("encoder", "decoder"):
        side = gemma2.drawn(draw)
        sides[name] = {**side, "hidden_size": side["num_attention_heads"] * draw(st.integers(1, 9))}
    return some(draw, {**sides, "pad_token_id": 0}, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    decoder, sizes = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    width, layers = of.more[0], of.Le
    encoder = {**decoder, "hidden_size": width, "num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    return {"encoder": encoder, "decoder": decoder}, {**sizes, "Denc": width, "J": of.J, "I": 0, "Le": layers}
