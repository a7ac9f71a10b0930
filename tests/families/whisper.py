"""Whisper: a stem of two convolutions in front of an encoder of audio, and a decoder of text."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._drawing import ON, SMALL, Draw, Fields, bart_like, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "whisper", "vocab_size": 193, "num_mel_bins": 11, "d_model": 60, "encoder_layers": 2,
    "decoder_layers": 3, "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71,
    "decoder_ffn_dim": 67, "max_source_positions": 19, "max_target_positions": 37, "pad_token_id": 0,
}  # fmt: skip
VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False}}
LOGITS = {"": TINY, "untied": VARIANTS["untied"]}
SILENT = {"scale_embedding": True, "median_filter_width": 9, "mask_time_length": 12, "classifier_proj_size": 300}
CONTEXT = 448
REQUIRED = {"pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    fields = without(bart_like(draw), "max_position_embeddings", "scale_embedding", "pad_token_id")
    fields |= {"max_source_positions": draw(st.integers(1, 14)), "pad_token_id": 0}
    return some(draw, fields, num_mel_bins=SMALL, max_target_positions=st.integers(25, 40), tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.bart_like(of, rows=0)
    config |= {"max_source_positions": of.J, "max_target_positions": of.P, "num_mel_bins": of.more[2]}
    return without(config, "max_position_embeddings"), {
        **sizes,
        "Penc": of.J,
        "Mf": of.more[2],
        "Fp": 2,
        "Kf": 3,
        "Dk": 3 * sizes["D"],
    }
