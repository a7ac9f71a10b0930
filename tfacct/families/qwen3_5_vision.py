"""Qwen3.5's encoder of images: that of Qwen3-VL, with the one merger behind its blocks."""

from typing import ClassVar

from tfacct.families import qwen3_vl_vision
from tfacct.families._base import UpTo

RELEASED = "2026-02"


class Config(qwen3_vl_vision.Config):
    """`Qwen3_5VisionConfig`, with its class's defaults."""

    deepstack_visual_indexes: tuple[UpTo, ...] = ()

    stems: ClassVar = ("Qwen3_5Vision",)

    def deepstack(self) -> None:
        """None. Raises ConfigError."""
        if self.deepstack_visual_indexes:
            raise self.refused("deepstack_visual_indexes", list(self.deepstack_visual_indexes))
