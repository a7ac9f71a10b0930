"""T5Gemma 2: two sides of Gemma 3's blocks, as wide as each other; a decoder's attention reads the source too."""

from hypothesis import strategies as st

from tests.families import gemma3_text
from tests.families._drawing import ON, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized, grouped

DECODER = {**without(gemma3_text.TINY, "model_type"), "num_hidden_layers": 3}
READS = {**DECODER, "num_hidden_layers": 4, "intermediate_size": 67, "num_key_value_heads": 3, "sliding_window": 8}
TINY = {
    "model_type": "t5gemma2", "vocab_size": 127, "encoder": {"text_config": READS}, "decoder": DECODER,
    "pad_token_id": 0,
}  # fmt: skip
VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False}}
LOGITS = {
    "": TINY,
    "bounded, untied": {**VARIANTS["untied"], "decoder": {**DECODER, "final_logit_softcapping": 3.0}},
}
SILENT = {"initializer_range": 0.3, "image_token_index": 3}
CONTEXT = 131072
REQUIRED: Fields = {}


def drawn(draw: Draw) -> Fields:
    wide = draw(st.integers(1, 9)) * 12
    sides = []
    for _ in range(2):
        side = gemma3_text.drawn(draw)
        heads = draw(st.sampled_from((1, 2, 3, 4, 6, 12)))
        groups = draw(st.sampled_from([n for n in (1, 2, 3, 4, 6) if heads % n == 0]))
        sides.append(side | {"hidden_size": wide, "num_attention_heads": heads, "num_key_value_heads": groups})
    reads, writes = sides
    reads["vocab_size"] = writes["vocab_size"]
    return some(draw, {"encoder": {"text_config": reads}, "decoder": writes, "pad_token_id": 0}, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    decoder, sizes = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    width, layers = of.more[0], of.Le
    encoder = {**decoder, "intermediate_size": width, "num_hidden_layers": layers}
    encoder["layer_types"] = ["full_attention"] * layers
    fields = {"encoder": {"text_config": encoder}, "decoder": decoder, "tie_word_embeddings": of.on[0]}
    return fields, {**sizes, "Fenc": width, "J": of.J, "I": 0, "Le": layers}
