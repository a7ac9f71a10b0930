"""DINOv2: a learned factor for each channel, networks gated or not."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "dinov2", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6, "mlp_ratio": 3,
    "num_channels": 5, "image_size": 22, "patch_size": 5,
}  # fmt: skip
VARIANTS = {
    "gated": {**TINY, "use_swiglu_ffn": True, "mlp_ratio": 4},
    "without biases": {**TINY, "qkv_bias": False, "use_mask_token": False},
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 257
SILENT = {"layerscale_value": 0.3, "drop_path_rate": 0.1, "apply_layernorm": False, "reshape_hidden_states": False}


def drawn(draw: Draw) -> Fields:
    fields = without(image(draw), "intermediate_size")
    fields = some(draw, fields, qkv_bias=ON, use_swiglu_ffn=ON, mlp_ratio=st.integers(1, 5))
    return some(draw, fields, use_mask_token=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=1)
    ratio = of.more[3]
    return {**without(config, "intermediate_size"), "mlp_ratio": ratio}, {**sizes, "F": ratio * sizes["D"]}
