"""ESM C: an encoder with norms of all heads together, whose results have a factor by depth."""

from tests.families._drawing import EVEN, ON, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "esmc", "vocab_size": 61, "hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 53, "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
LOGITS = {
    "": TINY,
    "plain": {**TINY, "attention_bias": False, "mlp_bias": False, "hidden_act": "relu", "rope_theta": 500.0},
}
SILENT = {"mask_token_id": 3}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = {**without(of_whole_heads(draw, EVEN), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
    return some(draw, fields, attention_bias=ON, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, attention_bias=of.on[1], mlp_bias=of.on[2])
    return config, {**sizes, "T": of.S, "Dt": sizes["D"]}
