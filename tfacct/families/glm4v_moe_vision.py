"""The encoder of images in GLM-4.5V: that of GLM-4.1V."""

from typing import ClassVar

from tfacct.families import glm4v_vision

RELEASED = "2025-08"


class Config(glm4v_vision.Config):
    """`Glm4vMoeVisionConfig`, with its class's defaults."""

    stems: ClassVar = ("Glm4vMoeVision",)
