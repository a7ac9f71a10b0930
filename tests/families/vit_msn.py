"""ViT MSN: ViT without a pooler."""

from tests.families import vit
from tests.families._sizes import Distinct, Sized
from tests.families._towers import image_sizes

TINY = {**vit.TINY, "model_type": "vit_msn"}
VARIANTS = {"classes": {**TINY, "architectures": ["ViTMSNForImageClassification"], "num_labels": 11}}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 197
REQUIRED, drawn = vit.REQUIRED, vit.drawn


def sized(of: Distinct) -> Sized:
    return image_sizes(of, front=1)
