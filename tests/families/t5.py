"""T5: an encoder and a decoder, scores with a bias for distances, networks of two matrices or three."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, reading

TINY = {
    "model_type": "t5", "vocab_size": 191, "d_model": 48, "d_kv": 10, "d_ff": 71, "num_layers": 2,
    "num_decoder_layers": 3, "num_heads": 6, "n_positions": 33, "relative_attention_num_buckets": 15,
    "feed_forward_proj": "gated-gelu",
}  # fmt: skip
VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False, "feed_forward_proj": "relu"}}
NEAR = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11}
LOGITS = {"": TINY, "of few near distances": {**TINY, "feed_forward_proj": "relu", **NEAR}}
SILENT = {"is_gated_act": True, "dense_act_fn": "gelu_new"}
CONTEXT = 512
REQUIRED = {"vocab_size": 37, "d_model": 48, "num_layers": 2, "num_heads": 5}


def drawn(draw: Draw) -> Fields:
    fields = {"d_model": draw(WIDTH), "num_heads": draw(SMALL), "vocab_size": draw(VOCAB)}
    fields |= {"num_layers": draw(st.integers(1, 3)), "d_ff": draw(WIDTH)}
    networks = st.sampled_from(["relu", "gated-gelu", "gated-silu"])
    some(draw, fields, num_decoder_layers=st.none() | st.integers(1, 4), d_kv=SMALL, feed_forward_proj=networks)
    return some(draw, fields, relative_attention_num_buckets=st.integers(4, 40), tie_word_embeddings=st.just(True))


def sized(of: Distinct) -> Sized:
    config, sizes = reading(of, "num_heads num_heads d_ff d_ff num_layers num_decoder_layers")
    config |= {"d_model": of.D, "d_kv": of.H, "relative_attention_num_buckets": 2 * of.P}
    config |= {"feed_forward_proj": "gated-gelu" if of.on[0] else "relu"}
    return config, {**sizes, "Rp": 2 * of.P}
