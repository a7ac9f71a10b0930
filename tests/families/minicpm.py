"""MiniCPM: Llama with constants of its own names."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "minicpm", "vocab_size": 439, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 39,
    "scale_emb": 3.0, "scale_depth": 1.7, "dim_model_base": 13.0, "attention_bias": True, "tie_word_embeddings": False,
}  # fmt: skip
SILENT = {"mup_denominator": 32, "num_experts": 0}
RUN_BY = "Granite"
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, head_dim=False), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return parts_of_hidden(of, num_key_value_heads=of.K, intermediate_size=of.F, attention_bias=of.on[1])
