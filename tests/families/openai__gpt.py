"""GPT, the first one: norms behind the sublayers; its class keeps nothing between steps."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {"model_type": "openai-gpt", "vocab_size": 461, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37}
LOGITS = {"": TINY, "relu": {**TINY, "afn": "relu", "layer_norm_epsilon": 1e-3}}
REQUIRED = {"n_layer": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    heads = draw(SMALL) * draw(SMALL)
    fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
    fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
    return some(draw, fields, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = of_heads(of, "vocab_size n_embd n_layer n_head", n_positions=of.P, tie_word_embeddings=of.on[0])
    return config, {**sizes, "F": 4 * sizes["D"], "P": of.P}
