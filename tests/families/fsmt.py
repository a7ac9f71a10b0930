"""FSMT: Marian's layout with tables of two vocabularies, and a head of its own or all three in one."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._drawing import ON, VOCAB, Draw, Fields, bart_like, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "fsmt", "src_vocab_size": 197, "tgt_vocab_size": 199, "d_model": 66, "encoder_layers": 2,
    "decoder_layers": 3, "encoder_attention_heads": 6, "decoder_attention_heads": 22, "encoder_ffn_dim": 71,
    "decoder_ffn_dim": 73, "max_position_embeddings": 41, "pad_token_id": 1, "langs": ["en", "de"],
}  # fmt: skip
VARIANTS = {"one table": {**TINY, "src_vocab_size": 199, "tie_word_embeddings": True, "scale_embedding": False}}
LOGITS = {"": TINY, **VARIANTS}
SILENT = {"langs": ["ru", "en"], "decoder": {"model_type": "fsmt_decoder", "vocab_size": 199}}
REQUIRED = {"encoder_layers": 2, "decoder_layers": 3}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = without(bart_like(draw), "vocab_size", "tie_word_embeddings")
    fields["d_model"] *= 4  # the class divides by the number of its sines less 1
    fields |= {"tgt_vocab_size": draw(VOCAB), "pad_token_id": draw(st.integers(0, 5))}
    if draw(ON):
        return {**fields, "src_vocab_size": fields["tgt_vocab_size"], "tie_word_embeddings": True}
    return {**fields, "src_vocab_size": draw(VOCAB)}


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.bart_like(of, rows=2)
    return {**config, "src_vocab_size": of.V, "tie_word_embeddings": of.on[0]}, sizes
