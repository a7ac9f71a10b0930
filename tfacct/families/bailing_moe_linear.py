"""Ring and Ling 2.0 linear: lightning attention in four layers of five, Ling 2.0's attention in the fifth."""

from typing import ClassVar

from tfacct.architecture.parts import Attention, QKNorm
from tfacct.families._base import even, turned_part
from tfacct.families._ling_like import LingLike
from tfacct.families.glm4_moe import Config as Glm4Moe

RELEASED = "2025-09"


class Config(LingLike):
    """`BailingMoeLinearV2Config` of its own code, with its defaults: transformers has no class for it."""

    stems: ClassVar = ("BailingMoeLinearV2", "Glm4Moe")
    class_type: ClassVar = "glm4_moe"
    hf_paths: ClassVar = Glm4Moe.hf_paths
    hf_tensors: ClassVar = Glm4Moe.hf_tensors

    def attending(self) -> Attention:
        """Grouped heads, normed and turned in part."""
        turned = int(self.head_dim * turned_part(self.partial_rotary_factor, self.rope_parameters))
        return self.attention(
            rope_dim=even(turned, "partial_rotary_factor · head_dim ="),
            qkv_bias=self.use_qkv_bias,
            out_bias=self.use_bias,
            qk_norm=QKNorm(self.rms_norm_eps) if self.use_qk_norm else None,
        )
