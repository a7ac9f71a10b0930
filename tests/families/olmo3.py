"""OLMo 3: OLMo 2 with windows in three layers of four."""

from tests.families._drawing import ON, PLAIN, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "olmo3", "vocab_size": 241, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 55,
    "sliding_window": 5, "attention_bias": True, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
STRETCHED = {"rope_type": "linear", "factor": 8.0}
LOGITS = {"": TINY, "stretched": {**TINY, "rope_theta": 700.0, "rope_scaling": STRETCHED}}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = layer_types(draw, llama_like(draw) | {"sliding_window": draw(WINDOW)})
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
