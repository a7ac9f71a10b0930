"""I-JEPA: ViT of patches alone."""

from tests.families import vit
from tests.families._sizes import Distinct, Sized
from tests.families._towers import image_sizes

TINY = {**vit.TINY, "model_type": "ijepa"}
VARIANTS = {"classes": {**TINY, "architectures": ["IJepaForImageClassification"], "num_labels": 11}}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 196
REQUIRED, drawn = vit.REQUIRED, vit.drawn


def sized(of: Distinct) -> Sized:
    return image_sizes(of, front=0)
