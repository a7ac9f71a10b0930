"""Idefics2's encoder of images: that of Idefics3."""

from typing import ClassVar

from tfacct.families import idefics3_vision
from tfacct.families._base import Count
from tfacct.families._endings import Ending
from tfacct.families._towers import PATCHES_SAID

RELEASED = "2024-04"


class Config(idefics3_vision.Config):
    """`Idefics2VisionConfig`, with its class's defaults."""

    hidden_size: Count = 768
    num_attention_heads: Count = 12

    stems: ClassVar = ("Idefics2Vision",)
    heads: ClassVar = {"Transformer": Ending("models.idefics2.modeling_idefics2.Idefics2VisionTransformer", "none")}
    gotchas: ClassVar = (
        PATCHES_SAID,
        "A patch's position is the nearest of those of an image of image_size. What makes a fixed number of rows of the"
        " patches after the encoder (its connector, a perceiver) belongs to the whole: --part both counts its"
        " parameters.",
    )
