"""Qwen2.5-Omni's encoder of audio: chunks of positions, means of two, and a product."""

from hypothesis import strategies as st

from tests.families import voxtral_encoder as first
from tests.families._drawing import WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families.voxtral_encoder import CONTEXT as CONTEXT
from tests.families.voxtral_encoder import REQUIRED as REQUIRED

TINY = {
    **first.TINY, "model_type": "qwen2_5_omni_audio_encoder", "max_source_positions": 34, "n_window": 4,
    "output_dim": 23,
}  # fmt: skip
SILENT = {"scale_embedding": True, "layerdrop": 0.5}


def drawn(draw: Draw) -> Fields:
    fields = first.drawn(draw)
    each, hidden = draw(st.integers(1, 5)), 2 * fields["num_attention_heads"] * draw(st.integers(1, 4))
    sizes = {"max_source_positions": each * draw(st.integers(2, 5)), "n_window": each, "hidden_size": max(hidden, 4)}
    return some(draw, {**fields, **sizes}, output_dim=WIDTH)


def sized(of: Distinct) -> Sized:
    config, sizes = first.sized(of)
    chunk = 2 + of.seed % 3
    count = 2 * chunk * of.S
    del sizes["P"]
    config |= {"max_source_positions": count, "n_window": chunk, "output_dim": of.V}
    return config, {
        **sizes,
        "Wp": chunk,
        "Wk": chunk,
        "T": count,
        "S": count,
        "Mp": 2,
        "Dq": of.V,
        "Xe": 2,
        "Tm": count // 2,
    }
