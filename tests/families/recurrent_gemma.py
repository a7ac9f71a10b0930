"""RecurrentGemma: a gated linear recurrence in two layers of three, attention in a window in the third."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WINDOW, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "recurrent_gemma", "vocab_size": 211, "hidden_size": 36, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 74, "lru_width": 102,
    "conv1d_width": 8, "attention_window_size": 5, "block_types": ["recurrent", "attention"],
}  # fmt: skip
# the class keeps √hidden_size in bf16, so it is whole here
LOGITS = {
    "": TINY,
    "as published": {**TINY, "attention_bias": True, "block_types": ["recurrent", "recurrent", "attention"]},
}
SILENT = {"w_init_variance_scale": 0.5, "embeddings_scale_by_sqrt_dim": True}
CONTEXT = 8192
REQUIRED = {"num_hidden_layers": 3, "num_attention_heads": 8, "hidden_size": 128}


def drawn(draw: Draw) -> Fields:
    """Any order of both kinds of layers, with attention in one at least: without, the class does not run."""
    heads = draw(SMALL) * (kv := draw(SMALL))
    fields: Fields = {"num_attention_heads": heads, "vocab_size": draw(VOCAB), "hidden_size": heads * 4 * draw(SMALL)}
    fields |= {"intermediate_size": draw(EVEN), "num_hidden_layers": draw(st.integers(1, 4))}
    fields |= {"num_key_value_heads": draw(st.sampled_from([None, kv])), "attention_window_size": draw(WINDOW)}
    kinds = draw(st.lists(st.sampled_from(["recurrent", "attention"]), max_size=4))
    kinds.insert(draw(st.integers(0, fields["num_hidden_layers"] - 1)), "attention")
    fields["block_types"] = kinds
    some(draw, fields, conv1d_width=st.integers(2, 7), head_dim=SMALL.map(lambda size: 4 * size))
    some(draw, fields, lru_width=st.none() | SMALL.map(lambda size: size * heads))
    return some(draw, fields, attention_bias=ON, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    """The recurrence in all layers."""
    config, sizes = grouped(of)
    Nb, Hb, Kp, *_ = of.more
    config |= {"intermediate_size": 2 * sizes["F"], "block_types": ["recurrent"]}
    config |= {"num_attention_heads": Nb, "num_key_value_heads": Nb, "lru_width": Nb * Hb, "conv1d_width": Kp + 1}
    own = {letter: size for letter, size in sizes.items() if letter not in "KGHN"}
    return config, {**own, "Nb": Nb, "Hb": Hb, "Ob": Hb, "Dr": Nb * Hb, "Kp": Kp, "Kc": Kp + 1}
