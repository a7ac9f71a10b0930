"""gpt-oss: experts in every layer, windows in every other, a sink beside each head's scores."""

from tests.families._drawing import ON, PLAIN, WINDOW, Draw, Fields, experts, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "gpt_oss", "vocab_size": 151, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
    "max_position_embeddings": 69, "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
}  # fmt: skip
LOGITS: dict[str, Fields] = {}  # its experts have an activation of their own, which the reference lacks
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    return some(draw, layer_types(draw, fields | {"sliding_window": draw(WINDOW)}), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    plain = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    return routed(plain, of.more, "num_local_experts", "intermediate_size")
