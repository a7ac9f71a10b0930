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
    gotchas: ClassVar = (
        "transformers has no class for mimo: its configs come with code of their own, whose class is Qwen2's with "
        "layers that predict further tokens (num_nextn_predict_layers). Those are not counted. The witness is the "
        "class of Qwen2, given the same fields.",
        *(text for text in Qwen2.gotchas if "Reward" not in text and "1M" not in text),
    )
