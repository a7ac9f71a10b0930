"""Helium: Llama, whose heads share the hidden size; no bias on o."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "helium", "vocab_size": 227, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 49,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False, head_dim=False)
    fields["head_dim"] = fields["hidden_size"] // fields["num_attention_heads"]  # 128 if absent, which seldom fits
    return some(draw, fields, attention_bias=ON, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    fields = {"num_key_value_heads": of.K, "intermediate_size": of.F, "head_dim": of.H}
    return parts_of_hidden(of, attention_bias=of.on[1], mlp_bias=of.on[2], **fields)
