"""Qwen3-Omni's encoder of images: that of Qwen3-VL, whose mergers have other names."""

from typing import ClassVar

from tfacct.families import qwen3_vl_vision
from tfacct.families._endings import Ending

RELEASED = "2025-09"

MERGER = {"norm": "ln_q", "up_proj": "mlp.0", "down_proj": "mlp.2"}


class Config(qwen3_vl_vision.Config):
    """`Qwen3OmniMoeVisionEncoderConfig`, with its class's defaults."""

    stems: ClassVar = ("Qwen3OmniMoeVision",)
    heads: ClassVar = {
        "Encoder": Ending("models.qwen3_omni_moe.modeling_qwen3_omni_moe.Qwen3OmniMoeVisionEncoder", "none")
    }

    def class_paths(self) -> dict[str, str]:
        """With the mergers, by their places in the list."""
        blocks = {ours: theirs for ours, theirs in self.hf_paths.items() if not ours.startswith("merger.")}
        places = range(len(self.deepstack_visual_indexes))
        every = {f"deepstack.{i}": f"merger_list.{i}" for i in places} | {"merger": "merger"}
        own = {f"{ours}.{name}": f"{theirs}.{at}" for ours, theirs in every.items() for name, at in MERGER.items()}
        return {**blocks, **own}
