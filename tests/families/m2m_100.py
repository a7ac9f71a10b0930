"""M2M-100: norms in front of the sublayers, and sines that are computed and not stored."""

from tests.families import _sizes
from tests.families._drawing import Draw, Fields, bart_like
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "m2m_100", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
    "max_position_embeddings": 37, "pad_token_id": 1,
}  # fmt: skip
ODD = {**TINY, "d_model": 45, "encoder_attention_heads": 9, "decoder_attention_heads": 5, "scale_embedding": False}
LOGITS = {"": TINY, "of odd width": ODD}
SILENT = {"num_hidden_layers": 2, "max_length": 200}
REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


def drawn(draw: Draw) -> Fields:
    fields = bart_like(draw)
    return {**fields, "d_model": 4 * fields["d_model"]}  # two sines at the least: of one there is no rate


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.bart_like(of, rows=2)
    return config, {letter: size for letter, size in sizes.items() if letter != "P"}
