"""SigLIP's encoder of texts: the last position's vector is projected."""

from hypothesis import strategies as st

from tests.families._drawing import WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import blocks, text_sizes

TINY = {
    "model_type": "siglip_text_model", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "projection_size": 29,
    "pad_token_id": 1,
}  # fmt: skip


def drawn(draw: Draw) -> Fields:
    fields = {**blocks(draw), "pad_token_id": 1}
    return some(draw, fields, max_position_embeddings=st.integers(25, 40), projection_size=WIDTH)


def sized(of: Distinct) -> Sized:
    config, sizes = text_sizes(of, projection_size=of.J)
    return config, {**sizes, "Dv": of.J}
