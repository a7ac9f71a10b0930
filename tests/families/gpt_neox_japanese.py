"""GPT-NeoX Japanese: no biases but that of the last block's attention."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, SMALL, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gpt_neox_japanese", "vocab_size": 463, "hidden_size": 60, "num_hidden_layers": 3,
    "num_attention_heads": 6, "intermediate_multiple_size": 3, "max_position_embeddings": 45, "rotary_pct": 0.4,
}  # fmt: skip
BY_HEAD = True
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    share = draw(st.sampled_from([0.25, 0.5, 1.0]))
    fields = of_whole_heads(draw, EVEN.map(lambda turned: int(turned / share))) | {"rotary_pct": share}
    return some(draw, fields, intermediate_multiple_size=SMALL)


def sized(of: Distinct) -> Sized:
    share = 0.5 if of.H % 4 == 0 else 1.0  # what is turned has to be even
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_multiple_size"
    config, sizes = of_heads(of, names, tie_word_embeddings=of.on[0], rotary_pct=share)
    config["num_hidden_layers"] = 1  # all its blocks alike
    return config, {**sizes, "L": 1, "F": sizes["F"] * sizes["D"], "Hr": int(of.H * share)}
