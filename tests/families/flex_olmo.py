"""FlexOlmo: experts between OLMo 2's norms."""

from tests.families._drawing import ON, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "flex_olmo", "vocab_size": 383, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 115,
    "attention_bias": True, "num_experts": 7, "num_experts_per_tok": 4, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
LOGITS = {
    "of every expert": {**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True}
}  # the reference's routing is fixed
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw) | experts(draw, "num_experts") | {"pad_token_id": 0}
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return routed(grouped(of, attention_bias=of.on[1]), of.more, "num_experts", "intermediate_size")
