"""DPR: BERT's body, whose first position's vector a product may make longer."""

from hypothesis import strategies as st

from tests.families import bert
from tests.families._drawing import Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {**bert.TINY, "model_type": "dpr", "vocab_size": 491, "projection_dim": 29}
VARIANTS = {
    "without a product": {**TINY, "projection_dim": 0},
    "of passages": {**TINY, "architectures": ["DPRContextEncoder"]},
}
LOGITS = {"": TINY, "of passages": VARIANTS["of passages"]}  # without a product the class gives one vector, no stream
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, bert.drawn(draw), projection_dim=st.integers(0, 40))


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    return {**config, "projection_dim": of.Le}, {**sizes, "Dv": of.Le}
