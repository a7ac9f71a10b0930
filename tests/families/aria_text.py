"""Aria: Llama's attention, experts beside a shared network in every layer."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, llama_like, some, without
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "aria_text", "vocab_size": 151, "hidden_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
    "max_position_embeddings": 69, "moe_num_experts": 7, "moe_topk": 4, "moe_num_shared_experts": 3,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "moe_topk": 7}}  # the class's softmax is over the chosen ones
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields, count = llama_like(draw), draw(SMALL)
    fields |= {"moe_num_experts": count, "moe_topk": draw(st.integers(1, count))}
    return some(draw, fields, attention_bias=ON, mlp_bias=ON, moe_num_shared_experts=st.integers(1, 3))


def sized(of: Distinct) -> Sized:
    plain = grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2], moe_num_shared_experts=2)
    config, sizes = routed(plain, of.more, "moe_num_experts", "intermediate_size")
    config["moe_topk"] = config["num_experts_per_tok"]
    return without(config, "num_experts_per_tok"), {**sizes, "Fs": 2 * sizes["Fe"]}
