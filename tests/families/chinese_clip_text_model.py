"""Chinese CLIP's encoder of texts: BERT's body."""

from tests.families import bert
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**bert.TINY, "model_type": "chinese_clip_text_model", "projection_dim": 29}
VARIANTS = {"projected": {**TINY, "architectures": ["ChineseCLIPTextModelWithProjection"]}}
REQUIRED = bert.REQUIRED


def drawn(draw: Draw) -> Fields:
    return bert.drawn(draw)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    projected = {"architectures": ["ChineseCLIPTextModelWithProjection"], "projection_dim": of.more[2] + 300}
    return {**config, **projected}, {**sizes, "Dv": of.more[2] + 300}
