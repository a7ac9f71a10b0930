"""The encoder of images in GLM-4.5V: that of GLM-4.1V."""

from tests.families import glm4v_vision as first
from tests.families.glm4v_vision import CONTEXT as CONTEXT
from tests.families.glm4v_vision import REQUIRED as REQUIRED
from tests.families.glm4v_vision import drawn as drawn
from tests.families.glm4v_vision import sized as sized

TINY = {**first.TINY, "model_type": "glm4v_moe_vision"}
