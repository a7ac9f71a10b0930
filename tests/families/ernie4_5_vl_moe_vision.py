"""ERNIE 4.5 VL's encoder of images: Qwen2-VL's blocks, a norm, and nothing that merges patches."""

from hypothesis import strategies as st

from tests.families._drawing import Draw, Fields, some, without
from tests.families._qwen_vision import grid_image, grid_sizes, width_of
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "ernie4_5_vl_moe_vision", "depth": 2, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
    "in_channels": 5, "patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2,
}  # fmt: skip
REQUIRED: Fields = {"depth": 2}
CONTEXT = 5120


def drawn(draw: Draw) -> Fields:
    fields = without(grid_image(draw, "hidden_size"), "temporal_patch_size")
    return some(draw, width_of(draw, fields), hidden_act=st.just("gelu"))


def sized(of: Distinct) -> Sized:
    config, sizes = grid_sizes(of, "hidden_size", "out")
    config = {**without(config, "out", "temporal_patch_size"), "intermediate_size": of.F}
    return config, {**without(sizes, "Mp", "Du", "Dq"), "Px": of.J**2, "F": of.F}
