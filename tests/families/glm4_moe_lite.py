"""GLM-4.7-Flash: latent attention, dense and sparse layers as a list says."""

from hypothesis import strategies as st

from tests.families import _sizes, deepseek_v3
from tests.families._drawing import Draw, Fields, in_forms, latent, latent_forms, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    **without(deepseek_v3.TINY, "first_k_dense_replace"), "model_type": "glm4_moe_lite", "vocab_size": 151,
    "mlp_layer_types": ["dense", "sparse", "dense"],
}  # fmt: skip
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
LOGITS = {
    form: {**without(fields, "first_k_dense_replace"), "mlp_layer_types": ["dense"] * 3}
    for form, fields in latent_forms(TINY).items()
}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = without(latent(draw, draw(st.integers(1, 3))), "first_k_dense_replace")
    fields["n_shared_experts"] = max(1, fields["n_shared_experts"])
    layers = fields["num_hidden_layers"]
    listed = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    return some(draw, fields, mlp_layer_types=st.none() | listed)


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.sized_latent(of, ranked=True)
    return {**without(config, "first_k_dense_replace"), "mlp_layer_types": ["sparse"] * of.L}, sizes
