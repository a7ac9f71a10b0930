"""Qwen3-VL's encoder of images: a resampled table of positions, and mergers behind several blocks."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._qwen_vision import grid_image, grid_sizes
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "qwen3_vl_vision", "depth": 3, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
    "in_channels": 5, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 37,
    "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2],
}  # fmt: skip
VARIANTS = {"one merger": {**TINY, "deepstack_visual_indexes": []}}
REQUIRED: Fields = {"depth": 2, "deepstack_visual_indexes": [1]}
CONTEXT = 2304


def drawn(draw: Draw) -> Fields:
    fields = {**grid_image(draw, "hidden_size"), "intermediate_size": draw(WIDTH)}
    numbers = st.integers(0, fields["depth"] - 1)
    fields["deepstack_visual_indexes"] = draw(st.lists(numbers, unique=True, max_size=3))
    rows = SMALL.map(lambda side: side**2)
    return some(draw, fields, out_hidden_size=WIDTH, num_position_embeddings=rows, hidden_act=st.just("gelu"))


def sized(of: Distinct) -> Sized:
    config, sizes = grid_sizes(of, "hidden_size", "out_hidden_size")
    config |= {"intermediate_size": of.F, "num_position_embeddings": of.P**2, "deepstack_visual_indexes": [0]}
    return config, {**sizes, "F": of.F, "P": of.P**2}
