"""EXAONE 4.5's encoder of images: that of Qwen2.5-VL, with grouped queries."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention
from tfacct.families import qwen2_5_vl_vision
from tfacct.families._base import Count, share

RELEASED = "2026-04"


class Config(qwen2_5_vl_vision.Config):
    """`Exaone4_5_VisionConfig`, with its class's defaults."""

    num_key_value_heads: Count = 8

    stems: ClassVar = ("Exaone4_5_Vision",)
    fixed: ClassVar = frozenset()

    def attention(self) -> Attention:
        """With so many key heads. Raises ConfigError."""
        heads = self.num_key_value_heads
        group = share(self.num_heads, heads, "num_heads by num_key_value_heads")
        return replace(super().attention(), kv_heads=heads, group=group)
