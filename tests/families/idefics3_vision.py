"""Idefics3's encoder of images: SigLIP's without a pooler."""

from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "idefics3_vision", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
}  # fmt: skip
CONTEXT = 49


def drawn(draw: Draw) -> Fields:
    return image(draw)


def sized(of: Distinct) -> Sized:
    return image_sizes(of, front=0)
