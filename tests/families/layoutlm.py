"""LayoutLM: BERT with tables of where a token's box stands on its page."""

from hypothesis import strategies as st

from tests.families import bert
from tests.families._drawing import Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {**bert.TINY, "model_type": "layoutlm", "vocab_size": 557, "max_2d_position_embeddings": 43}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, bert.drawn(draw), max_2d_position_embeddings=st.integers(1, 40))


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    return {**config, "max_2d_position_embeddings": of.Le}, {**sizes, "Vb": of.Le}
