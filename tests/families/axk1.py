"""A.X K1: latent attention, a norm behind the experts, dense and sparse layers as a list says."""

from hypothesis import strategies as st

from tests.families import glm4_moe_lite
from tests.families._drawing import Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {**glm4_moe_lite.TINY, "model_type": "axk1", "vocab_size": 557, "q_lora_rank": 22}
LOGITS = {
    "of dense layers": {**TINY, "mlp_layer_types": ["dense"] * 3}
}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = glm4_moe_lite.drawn(draw)
    if fields.get("q_lora_rank") is None:
        fields["q_lora_rank"] = draw(st.integers(1, 9))
    return some(draw, fields, first_k_dense_replace=st.integers(0, 4), moe_layer_freq=st.integers(1, 3))


def sized(of: Distinct) -> Sized:
    return glm4_moe_lite.sized(of)
