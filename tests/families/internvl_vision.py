"""InternVL's encoder of images: a class token, a learned factor for each channel."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "internvl_vision", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
}  # fmt: skip
VARIANTS = {
    "with every norm": {**TINY, "use_qk_norm": True, "attention_bias": True, "use_mean_pooling": False},
    "of RMSNorms": {**TINY, "norm_type": "rms_norm"},
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 1025
SILENT = {"layer_scale_init_value": 0.3}


def drawn(draw: Draw) -> Fields:
    fields = some(draw, image(draw), use_qk_norm=ON, attention_bias=ON, use_mean_pooling=ON)
    return some(draw, fields, norm_type=st.sampled_from(["layer_norm", "rms_norm"]))


def sized(of: Distinct) -> Sized:
    return image_sizes(of, front=1)
