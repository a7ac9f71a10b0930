"""ERNIE 4.5 with experts: some layers, a shared network, and a bias by which the router chooses."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden, routed

TINY = {
    "model_type": "ernie4_5_moe", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 61,
    "use_bias": True, "moe_intermediate_size": 37, "moe_num_experts": 10, "moe_num_shared_experts": 3, "moe_k": 4,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False, head_dim=False)
    count = draw(SMALL)
    fields |= {"moe_num_experts": count, "moe_k": draw(st.integers(1, count)), "moe_intermediate_size": draw(SMALL)}
    return some(
        draw,
        fields,
        use_bias=ON,
        moe_num_shared_experts=st.integers(0, 3),
        moe_layer_start_index=st.integers(0, 3),
        moe_layer_end_index=st.integers(-1, 4),
        moe_layer_interval=st.integers(1, 3),
    )


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, num_key_value_heads=of.K, use_bias=of.on[1], moe_layer_start_index=0)
    config, sizes = routed((config, sizes), of.more, "moe_num_experts", "moe_intermediate_size")
    config["moe_k"] = config.pop("num_experts_per_tok")
    return {**config, "moe_num_shared_experts": 2}, {**sizes, "Fs": 2 * sizes["Fe"]}
