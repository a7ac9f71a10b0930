"""OLMo Hybrid: DeltaNet with norms in front, attention with norms behind."""

from hypothesis import strategies as st

from tests.families._deltas import FULL, LINEAR, deltas, sized_deltas
from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "olmo_hybrid", "pad_token_id": 0, "vocab_size": 107, "hidden_size": 60, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53,
    "attention_bias": True, "linear_conv_kernel_dim": 5, "linear_key_head_dim": 13, "linear_value_head_dim": 11,
    "linear_num_key_heads": 3, "linear_num_value_heads": 12, "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
}  # fmt: skip
LOGITS = {
    "": TINY,
    "unrotated": {**TINY, "rope_parameters": {"rope_type": "default", "rope_theta": None}},
    "of positive eigenvalues": {**TINY, "linear_allow_neg_eigval": False, "linear_value_head_dim": None},
}
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    fields = {**llama_like(draw, head_dim=False), "num_hidden_layers": (layers := draw(st.integers(2, 5)))}
    kinds = [LINEAR, FULL, *draw(st.lists(st.sampled_from([LINEAR, FULL]), min_size=layers - 2, max_size=layers - 2))]
    fields |= {"layer_types": draw(st.permutations(kinds)), "pad_token_id": 0}
    return some(draw, fields | deltas(draw), attention_bias=ON, linear_allow_neg_eigval=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, intermediate_size=of.F, num_key_value_heads=of.K)
    return sized_deltas(of, config, sizes)
