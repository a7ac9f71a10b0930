"""Granite with experts beside a shared network."""

from hypothesis import strategies as st

from tests.families import granitemoe
from tests.families._drawing import Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    **granitemoe.TINY, "model_type": "granitemoeshared", "vocab_size": 409, "shared_intermediate_size": 53,
}  # fmt: skip
VARIANTS = {"without a shared network": {**TINY, "shared_intermediate_size": 0}}
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
REQUIRED = granitemoe.REQUIRED


def drawn(draw: Draw) -> Fields:
    return some(draw, granitemoe.drawn(draw), shared_intermediate_size=st.integers(0, 9))


def sized(of: Distinct) -> Sized:
    config, sizes = granitemoe.sized(of)
    return {**config, "shared_intermediate_size": of.P}, {**sizes, "Fs": of.P}
