"""DeiT: a class token and one for distillation in front of the patches."""

from tests.families import vit
from tests.families._sizes import Distinct, Sized
from tests.families._towers import image_sizes

TINY = {**vit.TINY, "model_type": "deit"}
VARIANTS = {
    "classes": {**TINY, "architectures": ["DeiTForImageClassification"], "num_labels": 11},
    "both tokens": {**TINY, "architectures": ["DeiTForImageClassificationWithTeacher"], "num_labels": 11},
    "without biases": {**TINY, "qkv_bias": False},
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 198
SILENT = vit.SILENT
REQUIRED, drawn = vit.REQUIRED, vit.drawn


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=2)
    return config, {**sizes, "Dp": sizes["D"], "U": 1}
