"""MetaCLIP 2's encoder of images: CLIP's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.families._endings import Ending
from tfacct.families.clip_vision_model import Config as ClipVision

RELEASED = "2025-07"


class Config(ClipVision):
    """`MetaClip2VisionConfig`, with its class's defaults."""

    stems: ClassVar = ("MetaClip2Vision",)
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": replace(ClipVision.heads["Model"], auto="MetaClip2VisionModel"),
        "ModelWithProjection": replace(
            ClipVision.heads["ModelWithProjection"], auto="MetaClip2VisionModelWithProjection"
        ),
    }
