"""Qwen3-Omni's encoder of images: that of Qwen3-VL."""

from tests.families import qwen3_vl_vision as first
from tests.families.qwen3_vl_vision import CONTEXT as CONTEXT
from tests.families.qwen3_vl_vision import REQUIRED as REQUIRED
from tests.families.qwen3_vl_vision import drawn as drawn
from tests.families.qwen3_vl_vision import sized as sized

TINY = {**first.TINY, "model_type": "qwen3_omni_moe_vision_encoder"}
