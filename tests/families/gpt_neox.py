"""GPT-NeoX: parallel blocks with a norm each; a part of each head is turned."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, LAYERS, ON, WIDTH, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "gpt_neox", "vocab_size": 157, "hidden_size": 60, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 45, "rotary_pct": 0.4,
}  # fmt: skip
VARIANTS = {"sequential": {**TINY, "use_parallel_residual": False, "attention_bias": False}}
LOGITS = {"": TINY, **VARIANTS}
BY_HEAD = True
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    share = draw(st.sampled_from([0.25, 0.5, 1.0]))
    fields = of_whole_heads(draw, EVEN.map(lambda turned: int(turned / share)))
    fields |= {"intermediate_size": draw(WIDTH)}
    if share != 0.25:  # which is the class's own
        fields["rotary_pct"] = share
    return some(draw, fields, attention_bias=ON, use_parallel_residual=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    share = 0.5 if of.H % 4 == 0 else 1.0  # what is turned has to be even
    config, sizes = of_heads(of, names, tie_word_embeddings=of.on[0], attention_bias=of.on[1], rotary_pct=share)
    return config, {**sizes, "Hr": int(of.H * share)}
