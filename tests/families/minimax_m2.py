"""MiniMax-M2: experts in every layer, norms over all queries and all keys."""

from tests.families._drawing import EVEN, ON, Draw, Fields, experts, llama_like
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "minimax_m2", "vocab_size": 367, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 37, "max_position_embeddings": 107,
    "rotary_dim": 10, "num_local_experts": 7, "num_experts_per_tok": 4,
}  # fmt: skip
LOGITS = {}  # the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    turned = draw(EVEN)
    fields["head_dim"] = turned * (1 if draw(ON) else 2)
    return fields | ({"rotary_dim": turned} if draw(ON) else {})


def sized(of: Distinct) -> Sized:
    config, sizes = routed(grouped(of), of.more, "num_local_experts", "intermediate_size")
    return config, {**sizes, "Hr": of.H}
