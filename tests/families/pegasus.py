"""Pegasus: norms in front of the sublayers, and a stored table of sines on each side."""

from tests.families import _sizes
from tests.families._drawing import Draw, Fields, bart_like
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "pegasus", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
    "max_position_embeddings": 37, "scale_embedding": True, "activation_function": "relu", "pad_token_id": 0,
}  # fmt: skip
SILENT = {"extra_pos_embeddings": 1, "static_position_embeddings": True, "normalize_embedding": False}
REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


def drawn(draw: Draw) -> Fields:
    fields = bart_like(draw)
    return {**fields, "d_model": 2 * fields["d_model"]}  # sines and cosines, of which there are as many


def sized(of: Distinct) -> Sized:
    return _sizes.bart_like(of, rows=0)
