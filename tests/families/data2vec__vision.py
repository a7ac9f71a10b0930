"""data2vec for images: BEiT by another name."""

from tests.families import beit
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**beit.TINY, "model_type": "data2vec-vision"}
VARIANTS = {name: {**config, "model_type": "data2vec-vision"} for name, config in beit.VARIANTS.items()}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = beit.CONTEXT
SILENT = {"drop_path_rate": 0.2, "pool_scales": [1, 2, 3, 6], "use_auxiliary_head": True}
REQUIRED = beit.REQUIRED


def drawn(draw: Draw) -> Fields:
    return beit.drawn(draw)


def sized(of: Distinct) -> Sized:
    return beit.sized(of)
