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
