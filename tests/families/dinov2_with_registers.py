"""DINOv2 with registers: learned tokens without positions."""

from hypothesis import strategies as st

from tests.families import dinov2
from tests.families._drawing import Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

TINY = {**dinov2.TINY, "model_type": "dinov2_with_registers", "num_register_tokens": 3}
VARIANTS = {"gated": {**TINY, "use_swiglu_ffn": True, "mlp_ratio": 4}}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 201
SILENT, REQUIRED = dinov2.SILENT, dinov2.REQUIRED


def drawn(draw: Draw) -> Fields:
    return some(draw, without(dinov2.drawn(draw), "use_mask_token"), num_register_tokens=st.integers(1, 5))


def sized(of: Distinct) -> Sized:
    config, sizes = dinov2.sized(of)
    count = of.more[4]
    sizes |= {"Xr": count, "Xc": count + 1, "Ti": of.S - count - 1, "U": 1}
    return {**config, "num_register_tokens": count}, sizes
