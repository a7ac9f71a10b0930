"""A.X K2: gated norms, queries and gates made of a latent beside its norm."""

from hypothesis import strategies as st

from tests.families import deepseek_v32
from tests.families._drawing import SMALL, Draw, Fields, in_forms, some
from tests.families._sizes import Distinct, Sized

TINY = {
    **deepseek_v32.TINY, "model_type": "axk2", "vocab_size": 541, "gated_norm_rank": 25, "first_k_dense_replace": 0,
    "mlp_layer_types": ["dense", "sparse", "dense"],
}  # fmt: skip
# Dense layers only: the class weighs experts by sigmoids.
LOGITS = in_forms({**TINY, "mlp_layer_types": ["dense"] * 3}, "expanded", "absorbed")
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = deepseek_v32.drawn(draw) | {"gated_norm_rank": draw(SMALL)}
    if draw(st.booleans()):
        fields |= {"n_group": None, "topk_group": None}
    return some(draw, fields, moe_layer_freq=st.integers(1, 3))


def sized(of: Distinct) -> Sized:
    config, sizes = deepseek_v32.sized(of)
    return {**config, "gated_norm_rank": of.F + 330}, {**sizes, "Rn": of.F + 330, "Rj": 2 * sizes["Rq"]}
