"""Muse Spark: experts of narrower tokens, and learned weights of results and of the stream."""

from hypothesis import strategies as st

from tests.families import muse_glimmer_text
from tests.families._drawing import SMALL, Draw, Fields, experts, some, without
from tests.families._sizes import Distinct, Sized, routed

TINY = {
    **muse_glimmer_text.TINY, "model_type": "muse_spark_text", "vocab_size": 499, "pad_token_id": 0,
    "moe_intermediate_size": 37, "num_local_experts": 15, "num_experts_per_tok": 4, "moe_hidden_size": 26,
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
}  # fmt: skip
DENSE = {**TINY, "mlp_layer_types": ["dense"] * 4}  # the class weighs experts by sigmoids
LOGITS = {"": DENSE, "all rotated": {**DENSE, "layer_rope_theta": [5e5] * 4, "residual_gate_temperature": 0.7}}
SILENT = {"routed_scaling_factor": 2.0, "residual_gate_temperature": 0.5}
REQUIRED = {"num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2}


def drawn(draw: Draw) -> Fields:
    fields = without(muse_glimmer_text.drawn(draw), "tie_word_embeddings") | experts(draw, "num_local_experts")
    fields |= {"moe_intermediate_size": draw(SMALL), "moe_hidden_size": draw(SMALL), "pad_token_id": 0}
    layers = fields["num_hidden_layers"]
    kinds = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    return some(draw, fields, mlp_layer_types=st.none() | kinds)


def sized(of: Distinct) -> Sized:
    Dl, *more = of.more
    made = routed(muse_glimmer_text.sized(of), more, "num_local_experts", "moe_intermediate_size")
    return {**made[0], "tie_word_embeddings": False, "moe_hidden_size": Dl, "pad_token_id": 0}, {**made[1], "Dl": Dl}
