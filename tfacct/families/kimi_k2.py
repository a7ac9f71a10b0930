"""Kimi K2: DeepSeek-V3's block, with more experts and fewer heads."""

from typing import ClassVar

from tfacct.families.deepseek_v3 import Config as DeepseekV3

RELEASED = "2025-07"


class Config(DeepseekV3):
    """The fields of `DeepseekV3Config`, with that class's defaults: transformers has no class of its own for it."""

    stems: ClassVar = ("DeepseekV3",)
    class_type: ClassVar = "deepseek_v3"
    gotchas: ClassVar = (
        "transformers has no class for kimi_k2: its configs come with code of their own, and name "
        "DeepseekV3ForCausalLM. The witness is transformers' class of that name, given the same fields.",
        *DeepseekV3.gotchas,
    )
