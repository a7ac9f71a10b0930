"""MetaCLIP 2's encoder of texts: CLIP's."""

from tests.families import clip_text_model
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**clip_text_model.TINY, "model_type": "metaclip_2_text_model"}
VARIANTS = {"projected": {**TINY, "architectures": ["MetaClip2TextModelWithProjection"]}}
REQUIRED, INSTEAD = clip_text_model.REQUIRED, clip_text_model.INSTEAD


def drawn(draw: Draw) -> Fields:
    return clip_text_model.drawn(draw)


def sized(of: Distinct) -> Sized:
    config, sizes = clip_text_model.sized(of)
    return {**config, "architectures": ["MetaClip2TextModelWithProjection"]}, sizes
