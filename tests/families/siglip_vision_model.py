"""SigLIP's encoder of images: no class token, and a pooler that attends."""

from tests.families._drawing import ON, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "siglip_vision_model", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 5, "image_size": 33, "patch_size": 4,
}  # fmt: skip
VARIANTS = {"without a pooler": {**TINY, "vision_use_head": False}}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 196
SILENT = {"projection_dim": 2048, "num_image_tokens": 256, "projector_hidden_act": "gelu_fast", "vocab_size": 7}
SILENT |= {"num_positions": 256}


def drawn(draw: Draw) -> Fields:
    return some(draw, image(draw), vision_use_head=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=0)
    return config, {**sizes, "Qp": 1, "Np": sizes["N"], "Hz": sizes["H"]}
