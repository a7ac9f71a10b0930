"""Granite with experts and windows, beside a shared network or without one."""

from tests.families import granite_swa, granitemoeshared
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**granitemoeshared.TINY, "model_type": "granitemoe_swa", "vocab_size": 443, **granite_swa.OWN}
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
REQUIRED = granite_swa.REQUIRED


def drawn(draw: Draw) -> Fields:
    return granite_swa.windowed(draw, granitemoeshared.drawn(draw))


def sized(of: Distinct) -> Sized:
    config, sizes = granitemoeshared.sized(of)
    return {**config, "layer_types": ["full_attention"] * of.L}, sizes
