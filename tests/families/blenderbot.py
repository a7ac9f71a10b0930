"""Blenderbot: norms in front of the sublayers, positions from the first row on."""

from tests.families import _sizes, mbart
from tests.families._drawing import Draw, Fields, bart_like
from tests.families._sizes import Distinct, Sized

TINY = {**mbart.TINY, "model_type": "blenderbot", "vocab_size": 503}
REQUIRED = {"vocab_size": 37, "d_model": 64, "encoder_layers": 2, "decoder_layers": 3}


def drawn(draw: Draw) -> Fields:
    return bart_like(draw)


def sized(of: Distinct) -> Sized:
    return _sizes.bart_like(of, rows=0)
