"""MiniMax-M3's encoder of images: heads of which three parts turn."""

from tests.families._drawing import SMALL, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "minimax_m3_vl_vision", "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 3, "image_size": 22, "patch_size": 5, "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}  # fmt: skip
CONTEXT = 20736


def drawn(draw: Draw) -> Fields:
    return some(draw, image(draw), temporal_patch_size=SMALL, spatial_merge_size=SMALL)


def sized(of: Distinct) -> Sized:
    of.H += 6
    config, sizes = image_sizes(of, front=0)
    del sizes["P"]
    turned = 6 * (of.H // 3 // 2)
    return {**config, "temporal_patch_size": 3}, {**sizes, "Px": 3 * of.J**2, "Hr": turned}
