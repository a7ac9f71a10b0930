"""Persimmon: norms of queries and keys; two matrices in a network; q, k and v in one."""

from tests.families._drawing import EVEN, ON, WIDTH, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "persimmon", "vocab_size": 347, "hidden_size": 120, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 97,
}  # fmt: skip
VARIANTS = {"without norms of heads": {**TINY, "qk_layernorm": False}}
LOGITS = {"": TINY, **VARIANTS}
BY_HEAD = True
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    whole = draw(ON)
    fields = of_whole_heads(draw, EVEN if whole else EVEN.map(lambda turned: 2 * turned))
    fields |= {"partial_rotary_factor": 1.0} if whole else {}
    return some(draw, {**fields, "intermediate_size": draw(WIDTH)}, qk_layernorm=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    own = {"qk_layernorm": of.on[1], "partial_rotary_factor": 1.0}
    config, sizes = of_heads(of, names, tie_word_embeddings=of.on[0], **own)
    return config, {**sizes, "Hr": of.H}
