"""CLIP's encoder of images: a norm in front of the blocks, and one of the class token behind them."""

from tests.families._drawing import WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "clip_vision_model", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5, "projection_dim": 29,
}  # fmt: skip
VARIANTS = {"projected": {**TINY, "architectures": ["CLIPVisionModelWithProjection"]}}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 50
SILENT = {"initializer_factor": 0.3}


def drawn(draw: Draw) -> Fields:
    return some(draw, image(draw), projection_dim=WIDTH)


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=1)
    config |= {"architectures": ["CLIPVisionModelWithProjection"], "projection_dim": of.more[2]}
    return config, {**sizes, "Dv": of.more[2]}
