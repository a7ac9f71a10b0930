"""SigLIP 2's encoder of texts: SigLIP's."""

from tests.families import siglip_text_model
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**siglip_text_model.TINY, "model_type": "siglip2_text_model"}
REQUIRED = siglip_text_model.REQUIRED


def drawn(draw: Draw) -> Fields:
    return siglip_text_model.drawn(draw)


def sized(of: Distinct) -> Sized:
    return siglip_text_model.sized(of)
