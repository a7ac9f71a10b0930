"""Qwen2-VL's encoder of images: heads that turn by row and column, and patches that are merged."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._qwen_vision import grid_image, grid_sizes
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "qwen2_vl_vision", "depth": 2, "embed_dim": 48, "num_heads": 6, "mlp_ratio": 3, "in_channels": 5,
    "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 37,
}  # fmt: skip
REQUIRED: Fields = {"depth": 2}
CONTEXT = 5120


def drawn(draw: Draw) -> Fields:
    return some(draw, grid_image(draw, "embed_dim"), hidden_size=WIDTH, mlp_ratio=SMALL, hidden_act=st.just("gelu"))


def sized(of: Distinct) -> Sized:
    config, sizes = grid_sizes(of, "embed_dim", "hidden_size")
    return {**config, "mlp_ratio": 3}, {**sizes, "F": 3 * sizes["D"]}
