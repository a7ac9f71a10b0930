"""LED: a BART whose encoder attends in windows that overlap."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._drawing import Draw, Fields, bart_like, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "led", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 12, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
    "max_encoder_position_embeddings": 41, "max_decoder_position_embeddings": 37, "attention_window": 14,
}  # fmt: skip
TWO = {**TINY, "encoder_layers": 3, "attention_window": [4, 12, 4]}
LOGITS = {"": TINY, "windows of two sizes": TWO, "one window": {**TINY, "attention_window": 18}}
SILENT = {"save_step": 5}
CONTEXT = 1024
REQUIRED = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


def every_window(draw: Draw, blocks: int) -> int | list[int]:
    """A window of all blocks, or one of each."""
    half, more = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    every = st.lists(st.sampled_from([2 * half, 2 * half * more]), min_size=blocks, max_size=blocks)
    return draw(st.one_of(st.just(2 * half), every))


def drawn(draw: Draw) -> Fields:
    fields = without(bart_like(draw), "max_position_embeddings", "scale_embedding")
    fields["d_model"] *= 2  # a product over heads of one number torch runs as pointwise work
    fields["attention_window"] = every_window(draw, fields["encoder_layers"])
    return some(
        draw,
        fields,
        max_encoder_position_embeddings=st.integers(48, 80),
        max_decoder_position_embeddings=st.integers(25, 40),
    )


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.bart_like(of, rows=0)
    half = of.more[2]
    config |= {"max_encoder_position_embeddings": 500, "max_decoder_position_embeddings": of.P}
    config |= {"attention_window": 2 * half}
    sizes |= {"Penc": 500, "Wo": half, "Wf": 2 * half, "Wg": 2 * half, "Wv": 3 * half, "Ws": 2 * half + 1}
    return without(config, "max_position_embeddings"), {**sizes, "Wl": 2 * half, "Ip": 0, "Ih": 0, "Iw": 0}
