"""SigLIP 2's encoder of texts: SigLIP's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.families._endings import Ending
from tfacct.families.siglip_text_model import Config as SiglipText

RELEASED = "2025-02"


class Config(SiglipText):
    """`Siglip2TextConfig`, with its class's defaults."""

    stems: ClassVar = ("Siglip2Text",)
    heads: ClassVar[Mapping[str, Ending]] = {"Model": replace(SiglipText.heads["Model"], auto="Siglip2TextModel")}
