"""Phi-4-multimodal's encoder of images: SigLIP's, with a pooler always."""

from tests.families import siglip_vision_model as first
from tests.families._drawing import Draw, Fields
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image
from tests.families.siglip_vision_model import sized as sized

TINY = {**first.TINY, "model_type": "phi4_multimodal_vision"}
CONTEXT = 1024
SILENT = {"crop_size": 448, "feature_layer": -2, "image_token_id": 3}


def drawn(draw: Draw) -> Fields:
    return image(draw)
