"""LFM2 with experts: short convolutions and attention, dense layers in front."""

from hypothesis import strategies as st

from tests.families import lfm2
from tests.families._drawing import SMALL, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized, routed

OWN = ("block_multiple_of", "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim", "block_ff_dim", "full_attn_idxs")
TINY = {
    **without(lfm2.TINY, *OWN), "model_type": "lfm2_moe", "moe_intermediate_size": 37, "num_experts": 7,
    "num_experts_per_tok": 4, "num_dense_layers": 1,
}  # fmt: skip
LOGITS = {"": {**TINY, "num_dense_layers": 4}}  # dense layers only: the class weighs experts by sigmoids
SILENT = {"routed_scaling_factor": 2.0, "use_expert_bias": True, "norm_topk_prob": False}
REQUIRED = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1}


def drawn(draw: Draw) -> Fields:
    fields = without(lfm2.drawn(draw), *OWN)
    layers, count = fields["num_hidden_layers"], draw(SMALL)
    kinds = draw(st.lists(st.sampled_from(["conv", "full_attention"]), min_size=layers, max_size=layers))
    fields["layer_types"] = [*kinds[1:], "full_attention"]
    fields |= {"num_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
    return some(draw, fields, moe_intermediate_size=SMALL, num_dense_layers=st.integers(0, 5))


def sized(of: Distinct) -> Sized:
    config, sizes = routed(lfm2.sized(of), of.more, "num_experts", "moe_intermediate_size")
    return {**without(config, *OWN), "num_dense_layers": 0}, sizes
