"""BitNet: norms in front of the last products; heads share the hidden size."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "bitnet", "vocab_size": 211, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 3, "intermediate_size": 71, "max_position_embeddings": 47, "attention_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "tie_word_embeddings": True}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, head_dim=False), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, num_key_value_heads=of.K, intermediate_size=of.F, attention_bias=of.on[1])
    return config, sizes
