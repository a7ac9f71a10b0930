"""Qwen2.5-Omni's encoder of images: that of Qwen2.5-VL, with queries, keys and values as matrices of their own."""

from typing import ClassVar

from tfacct.families import qwen2_5_vl_vision
from tfacct.families._endings import Ending

RELEASED = "2025-03"


class Config(qwen2_5_vl_vision.Config):
    """`Qwen2_5OmniVisionEncoderConfig`, with its class's defaults."""

    stems: ClassVar = ("Qwen2_5OmniVision",)
    harmless: ClassVar = qwen2_5_vl_vision.Config.harmless | {"embed_dim"}
    heads: ClassVar = {"Encoder": Ending("models.qwen2_5_omni.modeling_qwen2_5_omni.Qwen2_5OmniVisionEncoder", "none")}
    hf_paths: ClassVar = {
        **qwen2_5_vl_vision.Config.hf_paths,
        **{f"blocks.*.attn.{name}_proj": f"blocks.*.attn.{name}" for name in "qkv"},
    }
