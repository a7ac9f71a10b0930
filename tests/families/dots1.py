"""dots.llm1: dense layers first, then experts beside a shared network; windows in the last layers."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden, routed

TINY = {
    "model_type": "dots1", "vocab_size": 167, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53, "attention_bias": True,
    "moe_intermediate_size": 37, "n_routed_experts": 10, "n_shared_experts": 3, "num_experts_per_tok": 4,
    "first_k_dense_replace": 1, "sliding_window": 5, "max_window_layers": 2,
}  # fmt: skip
LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False)
    count = draw(st.integers(2, 6))  # of a group the class looks at two
    fields |= {"n_routed_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
    fields |= {"moe_intermediate_size": draw(SMALL), "n_shared_experts": draw(st.integers(1, 3))}
    some(draw, fields, attention_bias=ON, first_k_dense_replace=st.integers(0, 5), max_window_layers=st.integers(0, 5))
    if draw(ON):
        return {**fields, "sliding_window": None}
    return layer_types(draw, {**fields, "sliding_window": draw(WINDOW)})


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, num_key_value_heads=of.K, attention_bias=of.on[1], sliding_window=None)
    config, sizes = routed((config, sizes), of.more, "n_routed_experts", "moe_intermediate_size")
    return {**config, "n_shared_experts": 2}, {**sizes, "Fs": 2 * sizes["Fe"]}
