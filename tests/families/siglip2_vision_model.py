"""SigLIP 2's encoder of images: a table of positions for a number of patches."""

from hypothesis import strategies as st

from tests.families import siglip_vision_model as first
from tests.families._drawing import Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED

TINY = {
    **without(first.TINY, "image_size"), "model_type": "siglip2_vision_model", "num_patches": 25,
}  # fmt: skip
VARIANTS = {"without a pooler": {**TINY, "vision_use_head": False}}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 256
SILENT = {"image_size": 512}


def drawn(draw: Draw) -> Fields:
    sides = st.integers(1, 5).map(lambda side: side**2)
    return some(draw, without(first.drawn(draw), "image_size"), num_patches=sides)


def sized(of: Distinct) -> Sized:
    config, sizes = first.sized(of)
    side = of.more[0]
    return {**without(config, "image_size"), "num_patches": side**2}, {**sizes, "P": side**2}
