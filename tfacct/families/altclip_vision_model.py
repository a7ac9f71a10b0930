"""AltCLIP's encoder of images: CLIP's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.families._endings import Ending
from tfacct.families.clip_vision_model import Config as ClipVision

RELEASED = "2022-11"


class Config(ClipVision):
    """`AltCLIPVisionConfig`, with its class's defaults."""

    stems: ClassVar = ("AltCLIPVision",)
    uncounted: ClassVar = ClipVision.uncounted | {"projection_dim"}
    heads: ClassVar[Mapping[str, Ending]] = {"Model": replace(ClipVision.heads["Model"], auto="AltCLIPVisionModel")}
    gotchas: ClassVar = (
        ClipVision.gotchas[0],
        "The norm behind the blocks runs over the class token's vector alone. The projections of a whole (AltCLIPModel)"
        " are not counted.",
    )
