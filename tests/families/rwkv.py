"""RWKV-4: no attention, states of fixed size in both halves of a block."""

from hypothesis import strategies as st

from tests.families._drawing import ON, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "rwkv", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
    "intermediate_size": 71, "context_length": 103,
}  # fmt: skip
LOGITS = {
    "": TINY,
    "tied": {**TINY, "tie_word_embeddings": True, "intermediate_size": None},
}
SILENT = {"rescale_every": 6}
INSTEAD = {
    "attn_scores_values": "time_mix.k_proj",
    "attn.scores": "time_mix.o_proj",
    "share.attn": "share.time_mix.r_proj",
    ".mlp": ".channel_mix",
}
REQUIRED = {"hidden_size": 128, "num_hidden_layers": 2, "vocab_size": 37}


def drawn(draw: Draw) -> Fields:
    """A width of its own or four times the hidden size; the recurrence as wide as the stream, said or not. The class
    cannot be built with one layer or one channel."""
    hidden = 1 + draw(WIDTH)
    fields = {"hidden_size": hidden, "num_hidden_layers": draw(st.integers(2, 4)), "vocab_size": draw(VOCAB)}
    some(draw, fields, intermediate_size=st.none() | WIDTH, attention_hidden_size=st.sampled_from([None, hidden]))
    return some(draw, fields, rescale_every=st.integers(0, 3), tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    Dw, *_ = of.more
    sizes = {**of.letters("DFVLBTS"), "Dw": Dw, "Sw": 3, "Do": of.D}
    config = {
        "vocab_size": of.V, "hidden_size": of.D, "num_hidden_layers": of.L, "intermediate_size": of.F,
        "attention_hidden_size": Dw, "tie_word_embeddings": of.on[0],
    }  # fmt: skip
    return config, sizes
