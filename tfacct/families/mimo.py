"""MiMo: Qwen2's block; layers that predict further tokens stand behind it and are not counted."""

from typing import ClassVar

from tfacct.families._endings import DECODER
from tfacct.families.qwen2 import Config as Qwen2

RELEASED = "2025-05"


class Config(Qwen2):
    """The fields of `Qwen2Config`, with that class's defaults: transformers has no class of its own for it."""

    stems: ClassVar = ("MiMo", "Qwen2")
    class_type: ClassVar = "qwen2"
    heads: ClassVar = DECODER
