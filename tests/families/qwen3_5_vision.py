"""Qwen3.5's encoder of images: that of Qwen3-VL, with one merger."""

from tests.families import qwen3_vl_vision as first
from tests.families._drawing import Draw, Fields, without
from tests.families._sizes import Distinct, Sized
from tests.families.qwen3_vl_vision import CONTEXT as CONTEXT

TINY = {**without(first.TINY, "deepstack_visual_indexes"), "model_type": "qwen3_5_vision"}
REQUIRED: Fields = {"depth": 2}


def drawn(draw: Draw) -> Fields:
    return without(first.drawn(draw), "deepstack_visual_indexes")


def sized(of: Distinct) -> Sized:
    config, sizes = first.sized(of)
    return without(config, "deepstack_visual_indexes"), sizes
