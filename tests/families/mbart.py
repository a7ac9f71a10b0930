"""mBART: BART's sides and tables, with a norm in front of every sublayer."""

from tests.families import _sizes
from tests.families._drawing import Draw, Fields, bart_like
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "mbart", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
    "max_position_embeddings": 37, "scale_embedding": True,
}  # fmt: skip
SILENT = {"extra_pos_embeddings": 2, "normalize_before": True, "add_final_layer_norm": True}
REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


def drawn(draw: Draw) -> Fields:
    return bart_like(draw)


def sized(of: Distinct) -> Sized:
    return _sizes.bart_like(of, rows=2)
