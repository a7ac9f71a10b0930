"""EXAONE 3: Llama, by names of its own; heads share the hidden size."""

from tests.families._drawing import Draw, Fields, llama_like
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "exaone", "vocab_size": 199, "hidden_size": 60, "num_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 3, "intermediate_size": 73, "max_position_embeddings": 43, "tie_word_embeddings": False,
    "activation_function": "silu",
}  # fmt: skip
RUN_BY = "Llama"
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False)
    return {**fields, "num_layers": fields.pop("num_hidden_layers")}


def sized(of: Distinct) -> Sized:
    return parts_of_hidden(of, num_key_value_heads=of.K, intermediate_size=of.F)
