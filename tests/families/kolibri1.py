"""Kolibri 1: windows in four layers of five, experts beside a shared network in every layer."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, SMALL, WINDOW, Draw, Fields, experts, layer_types, llama_like, some, without
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "kolibri1", "vocab_size": 167, "hidden_size": 48, "num_hidden_layers": 5,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 89,
    "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29, "num_experts": 8, "num_experts_per_tok": 4,
    "sliding_window": 7,
}  # fmt: skip
LOGITS: dict[str, Fields] = {}  # the class weighs experts by sigmoids, and has no dense layers
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = without(llama_like(draw, null_kv=False, head_dim=False), "intermediate_size") | experts(
        draw, "num_experts"
    )
    fields |= {"head_dim": draw(EVEN), "moe_intermediate_size": draw(SMALL), "sliding_window": draw(WINDOW)}
    some(draw, fields, shared_expert_intermediate_size=SMALL, norm_topk_prob=st.booleans())
    return layer_types(draw, fields)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, layer_types=["full_attention"] * of.L, shared_expert_intermediate_size=of.P)
    config, sizes = routed(
        (without(config, "intermediate_size"), sizes), of.more, "num_experts", "moe_intermediate_size"
    )
    return config, {**sizes, "Fs": of.P}
