"""The encoder of images in Qwen3-VL with experts: that of Qwen3-VL."""

from typing import ClassVar

from tfacct.families import qwen3_vl_vision

RELEASED = "2025-09"


class Config(qwen3_vl_vision.Config):
    """`Qwen3VLMoeVisionConfig`, with its class's defaults."""

    stems: ClassVar = ("Qwen3VLMoeVision",)
