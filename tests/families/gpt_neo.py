"""GPT-Neo: GPT-2, with a window in some layers."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, WIDTH, WINDOW, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gpt_neo", "vocab_size": 353, "hidden_size": 42, "num_layers": 2, "num_heads": 6,
    "intermediate_size": 67, "max_position_embeddings": 101, "window_size": 5,
    "attention_types": [[["global", "local"], 1]],
}  # fmt: skip
REQUIRED = {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}  # every size has a default


def drawn(draw: Draw) -> Fields:
    heads = draw(SMALL) * draw(SMALL)
    kinds = draw(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=3))
    fields = {"hidden_size": heads * draw(SMALL), "num_layers": len(kinds), "num_heads": heads}
    fields |= {"attention_types": [[[kind], 1] for kind in kinds], "window_size": draw(WINDOW)}
    fields |= {"vocab_size": draw(VOCAB), "max_position_embeddings": draw(st.integers(20, 40))}
    return some(draw, fields, intermediate_size=st.none() | WIDTH, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_layers num_heads intermediate_size"
    own = {"max_position_embeddings": of.P, "tie_word_embeddings": of.on[0], "attention_types": [[["global"], of.L]]}
    config, sizes = of_heads(of, names, **own)
    return config, {**sizes, "P": of.P}
