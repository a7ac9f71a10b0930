"""CTRL: sines that are computed and not stored, scaled rows of tokens, a head with a bias."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "ctrl", "vocab_size": 463, "n_embd": 42, "n_layer": 2, "n_head": 6, "dff": 71, "n_positions": 37,
}  # fmt: skip
LOGITS = {"": TINY, "of odd width": {**TINY, "n_embd": 45, "n_head": 5, "layer_norm_epsilon": 1e-3}}
REQUIRED = {"n_layer": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    heads = draw(SMALL) * draw(SMALL)
    fields = {"n_embd": heads * draw(SMALL), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
    fields |= {"vocab_size": draw(VOCAB), "dff": draw(WIDTH), "n_positions": draw(st.integers(20, 40))}
    return some(draw, fields, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size n_embd n_layer n_head dff"
    return of_heads(of, names, n_positions=of.P, tie_word_embeddings=of.on[0])
