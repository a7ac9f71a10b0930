"""The encoder of images in Qwen3.5 with experts: that of Qwen3.5."""

from typing import ClassVar

from tfacct.families import qwen3_5_vision

RELEASED = "2026-02"


class Config(qwen3_5_vision.Config):
    """`Qwen3_5MoeVisionConfig`, with its class's defaults."""

    stems: ClassVar = ("Qwen3_5MoeVision",)
