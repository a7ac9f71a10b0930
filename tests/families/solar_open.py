"""Solar Open: experts beside a shared network in every layer."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "solar_open", "vocab_size": 389, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 117, "attention_bias": True,
    "moe_intermediate_size": 37, "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 4,
}  # fmt: skip
LOGITS: dict[str, Fields] = {}  # the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | {"head_dim": draw(EVEN)}
    fields.pop("intermediate_size")
    count = draw(st.integers(2, 6))  # of a group the class looks at two
    fields |= {"n_routed_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
    fields |= {"moe_intermediate_size": draw(SMALL), "n_shared_experts": draw(st.integers(1, 3))}
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = routed(grouped(of, attention_bias=of.on[1]), of.more, "n_routed_experts", "moe_intermediate_size")
    return {**config, "n_shared_experts": 2}, {**sizes, "Fs": 2 * sizes["Fe"]}
