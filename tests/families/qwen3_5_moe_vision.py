"""The encoder of images in Qwen3.5 with experts: that of Qwen3.5."""

from tests.families import qwen3_5_vision as first
from tests.families.qwen3_5_vision import CONTEXT as CONTEXT
from tests.families.qwen3_5_vision import REQUIRED as REQUIRED
from tests.families.qwen3_5_vision import drawn as drawn
from tests.families.qwen3_5_vision import sized as sized

TINY = {**first.TINY, "model_type": "qwen3_5_moe_vision"}
