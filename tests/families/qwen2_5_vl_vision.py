"""Qwen2.5-VL's encoder of images: windows of patches, a gated network, and patches that are merged."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._qwen_vision import grid_image, grid_sizes
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "qwen2_5_vl_vision", "depth": 3, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
    "in_channels": 5, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 37,
    "window_size": 18, "fullatt_block_indexes": [1],
}  # fmt: skip
VARIANTS = {"without windows": {**TINY, "fullatt_block_indexes": [0, 1, 2, 7]}}
LOGITS = {"": TINY, **VARIANTS}
REQUIRED: Fields = {"depth": 2, "fullatt_block_indexes": [1]}
CONTEXT = 5120


def drawn(draw: Draw) -> Fields:
    fields = {**grid_image(draw, "hidden_size"), "intermediate_size": draw(WIDTH)}
    numbers = st.integers(0, fields["depth"])
    fields["fullatt_block_indexes"] = draw(st.lists(numbers, max_size=3))
    merged = fields.get("spatial_merge_size", 2) * fields.get("patch_size", 14)
    fields["window_size"] = merged * draw(st.integers(1, 3)) + draw(st.integers(0, merged - 1))
    return some(draw, fields, out_hidden_size=WIDTH, hidden_act=st.just("silu"), tokens_per_second=SMALL)


def sized(of: Distinct) -> Sized:
    config, sizes = grid_sizes(of, "hidden_size", "out_hidden_size")
    side = config["spatial_merge_size"]
    config |= {"intermediate_size": of.F, "window_size": of.J * side * 2, "fullatt_block_indexes": []}
    window = (2 * side) ** 2
    return config, {**sizes, "F": of.F, "Wp": window, "Wk": window, "T": window * of.S, "S": window * of.S}
