"""Grok-1: no class stands behind it, and no size has a default."""

from tests.families._sizes import Distinct, Sized, parts_of_hidden, routed

TINY = {
    "model_type": "grok-1", "vocab_size": 443, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 37, "num_experts": 5, "num_experts_per_tok": 4,
    "max_position_embeddings": 41, "attn_output_multiplier": 0.3, "max_attn_value": 30.0,
    "embedding_multiplier_scale": 7.7, "output_multiplier_scale": 0.6,
}  # fmt: skip
VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False}}
SILENT = {"router_aux_loss_coef": 0.001}


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, num_key_value_heads=of.K, max_position_embeddings=of.P)
    return routed((config, sizes), of.more, "num_experts", "intermediate_size")
