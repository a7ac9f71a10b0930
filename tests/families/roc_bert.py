"""RoCBert: BERT with tables of shapes and of sounds."""

from hypothesis import strategies as st

from tests.families import bert
from tests.families._drawing import Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    **bert.TINY, "model_type": "roc_bert", "vocab_size": 569, "shape_vocab_size": 53, "shape_embed_dim": 22,
    "pronunciation_vocab_size": 31, "pronunciation_embed_dim": 17,
}  # fmt: skip
REQUIRED = {"num_hidden_layers": 2}  # every size has a default
SIZES = st.integers(1, 40)


def drawn(draw: Draw) -> Fields:
    return some(
        draw,
        bert.drawn(draw),
        shape_vocab_size=SIZES,
        shape_embed_dim=SIZES,
        pronunciation_vocab_size=SIZES,
        pronunciation_embed_dim=SIZES,
    )


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    shapes, shape, sounds, sound = of.more[:4]
    config |= {"shape_vocab_size": shapes, "shape_embed_dim": shape}
    config |= {"pronunciation_vocab_size": sounds, "pronunciation_embed_dim": sound}
    own = {"Vsh": shapes, "Dsh": shape, "Vso": sounds, "Dso": sound, "Dal": sizes["D"] + shape + sound}
    return config, {**sizes, **own}
