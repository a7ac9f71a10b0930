"""Blenderbot small: norms behind the additions, positions from the first row on."""

from tests.families import _sizes, bart
from tests.families._drawing import Draw, Fields, bart_like
from tests.families._sizes import Distinct, Sized

TINY = {**bart.TINY, "model_type": "blenderbot-small", "vocab_size": 503}
LOGITS = {"": TINY, "scaled": {**TINY, "scale_embedding": True, "activation_function": "relu"}}
SILENT = {"normalize_before": False, "add_final_layer_norm": False, "do_blenderbot_90_layernorm": True}
REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


def drawn(draw: Draw) -> Fields:
    return bart_like(draw)


def sized(of: Distinct) -> Sized:
    return _sizes.bart_like(of, rows=0)
