"""SmolVLM's encoder of images: Idefics3's by another name."""

from typing import ClassVar

from tfacct.families.idefics3_vision import Config as Idefics3Vision

RELEASED = "2025-02"


class Config(Idefics3Vision):
    """`SmolVLMVisionConfig`, with its class's defaults."""

    stems: ClassVar = ("SmolVLMVision",)
