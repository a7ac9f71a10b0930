"""Qwen3's experts: in all layers but those that are listed."""

from tests.families._drawing import ON, PLAIN, Draw, Fields, llama_like, mixed_layers, qwen_windows, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "qwen3_moe", "vocab_size": 109, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
    "max_position_embeddings": 61, "moe_intermediate_size": 37, "num_experts": 7, "num_experts_per_tok": 4,
    "mlp_only_layers": [1], "attention_bias": True,
}  # fmt: skip
# The reference's routing is fixed.
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = qwen_windows(draw, llama_like(draw, null_kv=False), listed=False) | mixed_layers(draw)
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return routed(grouped(of, attention_bias=of.on[1]), of.more, "num_experts", "moe_intermediate_size")
