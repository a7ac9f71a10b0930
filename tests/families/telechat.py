"""TeleChat: no class stands behind it; biases on o and down alone."""

from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "telechat", "vocab_size": 457, "hidden_size": 60, "n_layer": 2, "n_head": 6, "num_key_value_heads": 3,
    "ffn_hidden_size": 83, "max_position_embeddings": 43, "tie_word_embeddings": False,
}  # fmt: skip
VARIANTS = {"tied": {**TINY, "num_key_value_heads": None, "tie_word_embeddings": True}}
SILENT = {"logn": True, "intermediate_size": 1}


def sized(of: Distinct) -> Sized:
    return parts_of_hidden(of, num_key_value_heads=of.K, ffn_hidden_size=of.F, max_position_embeddings=of.P)
