"""Voxtral's encoder of audio: two convolutions, a table of positions, and keys without biases."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import blocks

TINY = {
    "model_type": "voxtral_encoder", "num_mel_bins": 11, "hidden_size": 60, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_source_positions": 19,
}  # fmt: skip
SILENT = {"scale_embedding": True, "vocab_size": 51866, "layerdrop": 0.5}
CONTEXT = 1500


def drawn(draw: Draw) -> Fields:
    fields = {**blocks(draw, "vocab_size", "hidden_act"), "max_source_positions": draw(st.integers(1, 14))}
    return some(draw, fields, num_mel_bins=SMALL)


def sized(of: Distinct) -> Sized:
    config, sizes = of_heads(of, "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size")
    config |= {"max_source_positions": of.P, "num_mel_bins": of.more[2]}
    del config["vocab_size"], sizes["V"]
    more = {"P": of.P, "Mf": of.more[2], "Fp": 2, "Kf": 3, "Dk": 3 * sizes["D"], "T": of.S}
    return config, {**sizes, **more}
