"""CWM: Llama with windows in three layers of four."""

from tests.families._drawing import ON, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "cwm", "vocab_size": 239, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 53,
    "sliding_window": 5, "mlp_bias": True,
}  # fmt: skip
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = layer_types(draw, llama_like(draw, null_kv=False) | {"sliding_window": draw(WINDOW)})
    return some(draw, fields, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, mlp_bias=of.on[1], layer_types=["full_attention"] * of.L)
