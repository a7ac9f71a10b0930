"""XLNet: an encoder that scores distances by products of sines and cosines."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "xlnet", "vocab_size": 181, "d_model": 60, "n_layer": 2, "n_head": 12, "d_inner": 71,
}  # fmt: skip
LOGITS = {"": TINY, "relu": {**TINY, "ff_activation": "relu", "layer_norm_eps": 1e-3}}
SILENT = {"reuse_len": 5, "same_length": True, "untie_r": True}
CONTEXT = 512
REQUIRED = {"vocab_size": 37, "d_model": 128, "n_layer": 2, "n_head": 4}


def drawn(draw: Draw) -> Fields:
    heads = draw(st.integers(1, 9))
    fields = {"d_model": 2 * heads * draw(SMALL), "n_head": heads, "n_layer": draw(st.integers(1, 3))}
    fields |= {"vocab_size": draw(st.integers(7, 40)), "d_inner": draw(WIDTH)}
    return some(draw, fields, mem_len=st.none() | st.integers(0, 9), clamp_len=st.integers(-1, 9))


def sized(of: Distinct) -> Sized:
    config, sizes = of_heads(of, "vocab_size d_model n_layer n_head d_inner")
    return config, {**sizes, "T": of.S, "Xd": 2, "Vt": 2}
