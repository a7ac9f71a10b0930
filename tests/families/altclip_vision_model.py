"""AltCLIP's encoder of images: CLIP's."""

from tests.families import clip_vision_model
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**clip_vision_model.TINY, "model_type": "altclip_vision_model"}
VARIANTS = {"projected": {**TINY, "architectures": ["AltCLIPVisionModelWithProjection"]}}
CONTEXT, REQUIRED = clip_vision_model.CONTEXT, clip_vision_model.REQUIRED


def drawn(draw: Draw) -> Fields:
    return clip_vision_model.drawn(draw)


def sized(of: Distinct) -> Sized:
    config, sizes = clip_vision_model.sized(of)
    return {**config, "architectures": ["AltCLIPVisionModelWithProjection"]}, sizes
