"""StarCoder: GPT-2 whose queries share one key head."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gpt_bigcode", "vocab_size": 307, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 79,
    "n_inner": 67,
}  # fmt: skip
VARIANTS = {"of many heads": {**TINY, "multi_query": False, "tie_word_embeddings": False}}
LOGITS = {"": TINY}
REQUIRED = {"n_layer": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    heads = draw(SMALL) * draw(SMALL)
    fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
    fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
    return some(draw, fields, n_inner=st.none() | WIDTH, tie_word_embeddings=ON, multi_query=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size n_embd n_layer n_head n_inner"
    config, sizes = of_heads(of, names, n_positions=of.P, tie_word_embeddings=of.on[0], multi_query=of.on[1])
    shared = {"K": 1, "G": of.K} if of.on[1] else {}
    return config, {**sizes, "P": of.P, **shared}
