"""MPT: ALiBi, no biases, a network four times as wide as the model."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {"model_type": "mpt", "vocab_size": 349, "d_model": 42, "n_layers": 2, "n_heads": 6, "max_seq_len": 99}
LOGITS = {"": TINY, "bounded": {**TINY, "attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3}}}
REQUIRED = {"n_layers": 2}  # every size has a default
CONTEXT = 2048


def drawn(draw: Draw) -> Fields:
    heads = draw(st.integers(1, 12))
    fields = {"d_model": heads * draw(SMALL), "n_layers": draw(st.integers(1, 3)), "n_heads": heads}
    fields |= {"vocab_size": draw(VOCAB), "max_seq_len": draw(st.integers(20, 40))}
    own = st.fixed_dictionaries({"clip_qkv": st.none() | st.just(8.0), "softmax_scale": st.none() | st.just(0.5)})
    return some(draw, fields, tie_word_embeddings=ON, attn_config=own)


def sized(of: Distinct) -> Sized:
    config, sizes = of_heads(of, "vocab_size d_model n_layers n_heads", tie_word_embeddings=of.on[0])
    return config, {**sizes, "F": 4 * sizes["D"]}
