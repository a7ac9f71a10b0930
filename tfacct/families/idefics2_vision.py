"""Idefics2's encoder of images: that of Idefics3."""

from typing import ClassVar

from tfacct.families import idefics3_vision
from tfacct.families._base import Count
from tfacct.families._endings import Ending

RELEASED = "2024-04"


class Config(idefics3_vision.Config):
    """`Idefics2VisionConfig`, with its class's defaults."""

    hidden_size: Count = 768
    num_attention_heads: Count = 12

    stems: ClassVar = ("Idefics2Vision",)
    heads: ClassVar = {"Transformer": Ending("models.idefics2.modeling_idefics2.Idefics2VisionTransformer", "none")}
