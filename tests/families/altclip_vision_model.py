"""AltCLIP's encoder of images: CLIP's."""

from tests.families import clip_vision_model
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families._towers import image_sizes

TINY = {**clip_vision_model.TINY, "model_type": "altclip_vision_model"}
CONTEXT, REQUIRED = clip_vision_model.CONTEXT, clip_vision_model.REQUIRED


def drawn(draw: Draw) -> Fields:
    return clip_vision_model.drawn(draw)


def sized(of: Distinct) -> Sized:
    return image_sizes(of, front=1)
