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
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": replace(ClipVision.heads["Model"], auto="AltCLIPVisionModel"),
        "ModelWithProjection": replace(ClipVision.heads["ModelWithProjection"], auto=""),
    }
    gotchas: ClassVar = (
        ClipVision.gotchas[0],
        "The norm behind the blocks runs over the class token's vector alone. AltCLIPVisionModel has no projection; of"
        " a whole (AltCLIPModel) the one that makes a vector of projection_dim numbers is counted too.",
    )
