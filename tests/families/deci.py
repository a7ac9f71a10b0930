"""DeciLM: no class stands behind it; key heads of each layer's own."""

from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "deci", "vocab_size": 463, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads_per_layer": [4, 2, 2, 4], "intermediate_size": 89, "max_position_embeddings": 53,
}  # fmt: skip
VARIANTS = {"biases": {**TINY, "attention_bias": True, "tie_word_embeddings": True}}
SILENT = {"pretraining_tp": 1}


def sized(of: Distinct) -> Sized:
    own = {"intermediate_size": of.F, "max_position_embeddings": of.P}
    return parts_of_hidden(of, num_key_value_heads_per_layer=[of.K] * of.L, **own)
