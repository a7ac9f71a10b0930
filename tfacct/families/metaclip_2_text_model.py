"""MetaCLIP 2's encoder of texts: CLIP's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.families._endings import Ending
from tfacct.families.clip_text_model import Config as ClipText

RELEASED = "2025-07"


class Config(ClipText):
    """`MetaClip2TextConfig`, with its class's defaults."""

    stems: ClassVar = ("MetaClip2Text",)
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": replace(ClipText.heads["Model"], auto="MetaClip2TextModel"),
        "ModelWithProjection": replace(ClipText.heads["ModelWithProjection"], auto="MetaClip2TextModelWithProjection"),
    }
