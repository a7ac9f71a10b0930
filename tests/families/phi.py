"""Phi: attention and network side by side behind one norm; a part of each head is turned."""

from tests.families._drawing import LAYERS, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "phi", "vocab_size": 131, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 49, "qk_layernorm": True,
}  # fmt: skip
LOGITS = {"": TINY, "plain": {**TINY, "qk_layernorm": False, "partial_rotary_factor": 1.0}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False)
    parts = 2 if draw(ON) else 1  # what of a head is turned has to be even
    fields["hidden_size"] *= parts
    fields["partial_rotary_factor"] = 1 / parts
    return some(draw, fields, qk_layernorm=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, num_key_value_heads=of.K, intermediate_size=of.F)
    return {**config, "partial_rotary_factor": 1.0, "qk_layernorm": of.on[1]}, {**sizes, "Hr": of.H}
