"""Qwen2.5-Omni's encoder of images: that of Qwen2.5-VL."""

from tests.families import qwen2_5_vl_vision as first
from tests.families.qwen2_5_vl_vision import CONTEXT as CONTEXT
from tests.families.qwen2_5_vl_vision import REQUIRED as REQUIRED
from tests.families.qwen2_5_vl_vision import drawn as drawn
from tests.families.qwen2_5_vl_vision import sized as sized

TINY = {**first.TINY, "model_type": "qwen2_5_omni_vision_encoder"}
