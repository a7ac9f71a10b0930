"""Hunyuan V4: indexers, gates and sinks, between streams that nothing mixes."""

from hypothesis import strategies as st

from tests.families import deepseek_v32 as indexed
from tests.families._drawing import SMALL, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    **without(indexed.TINY, "first_k_dense_replace"), "model_type": "hy_v4", "vocab_size": 163, "hc_mult": 13,
    "indexer_types": ["full", "shared", "full"], "mlp_layer_types": ["dense", "sparse", "sparse"], "pad_token_id": 0,
}  # fmt: skip
DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
LOGITS = {"": DENSE, "of indexers alone": {**DENSE, "indexer_types": ["full"] * 3, "hc_magnitude": 1.3, "hc_mult": 2}}
SILENT = {"learnable_sink_init": 0.5, "swiglu_limit": 7.0, "hc_magnitude": 1.5}
REQUIRED = indexed.REQUIRED


def drawn(draw: Draw) -> Fields:
    fields = indexed.drawn(draw)
    layers = fields["num_hidden_layers"]
    kinds = st.lists(st.sampled_from(["full", "shared"]), min_size=layers - 1, max_size=layers - 1)
    fields = {**without(fields, "first_k_dense_replace"), "pad_token_id": 0}
    return some(draw, fields, indexer_types=st.none() | kinds.map(lambda rest: ["full", *rest]), hc_mult=SMALL)


def sized(of: Distinct) -> Sized:
    config, sizes = indexed.sized(of)
    del config["first_k_dense_replace"]
    config |= {"mlp_layer_types": ["sparse"] * of.L, "indexer_types": ["full"] * of.L, "pad_token_id": 0}
    return {**config, "hc_mult": of.J}, {**sizes, "Xm": of.J, "Xn": of.J, "Xk": 2 * of.J, "Xl": 2, "Xg": 1}
