"""GPT-2: learned positions, a tied head, heads that share the hidden size."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gpt2", "vocab_size": 59, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37, "n_inner": 67,
}  # fmt: skip
LOGITS = {"": TINY, "gelu": {**TINY, "activation_function": "gelu", "layer_norm_epsilon": 1e-3}}
REQUIRED = {"vocab_size": 37, "n_embd": 48, "n_layer": 2, "n_head": 4}


def drawn(draw: Draw) -> Fields:
    heads = draw(SMALL) * draw(SMALL)
    fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
    fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
    return some(draw, fields, n_inner=st.none() | WIDTH, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size n_embd n_layer n_head n_inner"
    config, sizes = of_heads(of, names, n_positions=of.P, tie_word_embeddings=of.on[0])
    return config, {**sizes, "P": of.P}
