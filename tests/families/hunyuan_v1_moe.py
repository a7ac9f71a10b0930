"""Hunyuan with experts: a shared network as wide as one of them; as many experts for a token as the layer says."""

from hypothesis import strategies as st

from tests.families import hunyuan_v1_dense as dense
from tests.families._drawing import SMALL, Draw, Fields
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    **dense.TINY, "model_type": "hunyuan_v1_moe", "num_experts": 7, "moe_topk": [4, 5, 4], "vocab_size": 137,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "moe_topk": 7}}  # the reference's routing is fixed
REQUIRED = dense.REQUIRED


def drawn(draw: Draw) -> Fields:
    fields, count = dense.drawn(draw), draw(SMALL)
    active, layers = st.integers(1, count), fields["num_hidden_layers"]
    listed = st.lists(active, min_size=layers, max_size=layers)
    return {**fields, "num_experts": count, "moe_topk": draw(active | listed)}


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1])
    A, E = sorted(of.more[:2])
    width = sizes.pop("F")
    return {**config, "num_experts": E, "moe_topk": A}, {**sizes, "A": A, "E": E, "Fe": width}
