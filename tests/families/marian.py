"""Marian: BART's layout with sines for positions; one table of tokens, or one on each side."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._drawing import ON, Draw, Fields, bart_like
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "marian", "vocab_size": 197, "d_model": 66, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 6, "decoder_attention_heads": 22, "encoder_ffn_dim": 71, "decoder_ffn_dim": 73,
    "max_position_embeddings": 41, "pad_token_id": 0, "decoder_start_token_id": 0, "scale_embedding": True,
}  # fmt: skip
VARIANTS = {
    "a table on each side": {**TINY, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 199},
}
LOGITS = {"": TINY, **VARIANTS}
SILENT = {"extra_pos_embeddings": 58100}
REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    fields = bart_like(draw) | {"decoder_start_token_id": 0}
    fields["d_model"] *= 2  # sines and cosines, of which there are as many
    if draw(ON):
        return fields
    own = draw(st.none() | st.integers(7, 40))
    return {**fields, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": own}


def sized(of: Distinct) -> Sized:
    apart = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": of.on[1]}
    return _sizes.bart_like(of, rows=0, **(apart if of.on[0] else {}))
