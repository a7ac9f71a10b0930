"""ViT: patches and a class token, a norm in front of each sublayer."""

from tests.families._drawing import ON, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "vit", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 71,
    "num_channels": 5, "image_size": 22, "patch_size": 5,
}  # fmt: skip
VARIANTS = {
    "classes": {**TINY, "architectures": ["ViTForImageClassification"], "num_labels": 11},
    "without biases": {**TINY, "qkv_bias": False},
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 197
SILENT = {"encoder_stride": 7, "initializer_range": 0.3}


def drawn(draw: Draw) -> Fields:
    return some(draw, image(draw), qkv_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=1)
    return config, {**sizes, "Dp": sizes["D"]}
