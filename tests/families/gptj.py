"""GPT-J: parallel blocks behind one norm; a part of each head is turned."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gptj", "vocab_size": 311, "n_embd": 60, "n_layer": 2, "n_head": 6, "n_positions": 83,
    "n_inner": 67, "rotary_dim": 4,
}  # fmt: skip
REQUIRED = {"n_layer": 2}  # every size has a default


def of_parts(draw: Draw, parts: int) -> Fields:
    """Heads in so many parts."""
    heads, turned = parts * draw(SMALL), draw(EVEN)
    fields = {"n_embd": heads * (turned + draw(st.integers(0, 4))), "n_layer": draw(st.integers(1, 3))}
    fields |= {
        "n_head": heads,
        "rotary_dim": turned,
        "vocab_size": draw(VOCAB),
        "n_positions": draw(st.integers(20, 40)),
    }
    return some(draw, fields, n_inner=st.none() | WIDTH, tie_word_embeddings=ON)


def drawn(draw: Draw) -> Fields:
    return of_parts(draw, 1)


def sized(of: Distinct) -> Sized:
    names = "vocab_size n_embd n_layer n_head n_inner"
    config, sizes = of_heads(of, names, n_positions=of.P, tie_word_embeddings=of.on[0], rotary_dim=of.H)
    return config, {**sizes, "Hr": of.H}
