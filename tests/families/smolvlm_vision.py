"""SmolVLM's encoder of images: Idefics3's by another name."""

from tests.families import idefics3_vision
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED

TINY = {**idefics3_vision.TINY, "model_type": "smolvlm_vision"}
CONTEXT = 49


def drawn(draw: Draw) -> Fields:
    return idefics3_vision.drawn(draw)


def sized(of: Distinct) -> Sized:
    return idefics3_vision.sized(of)
