"""GLM-OCR's encoder of images: that of GLM-4.1V with normed queries and keys, biases, and no table of positions."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, FeedForward, GatedMerger, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families import glm4v_vision
from tfacct.families._base import Count, Switch
from tfacct.families._qwen_vision import PATHS

RELEASED = "2026-01"


class Config(glm4v_vision.Config):
    """`GlmOcrVisionConfig`, with its class's defaults."""

    hidden_size: Count = 1024
    attention_bias: Switch = True
    num_heads: Count = 16
    out_hidden_size: Count = 1536
    intermediate_size: Count = 4096

    stems: ClassVar = ("GlmOcrVision",)
    uncounted: ClassVar = glm4v_vision.Config.uncounted | {"image_size"}
    hf_paths: ClassVar = {
        **PATHS,
        **{f"blocks.*.attn.{name}_norm": f"blocks.*.attn.{name}_norm" for name in "qk"},
        **glm4v_vision.ENDS,
    }

    def attention(self) -> Attention:
        """Heads whose queries and keys are normed. Raises ConfigError."""
        biased = self.attention_bias
        return replace(super().attention(), qkv_bias=biased, out_bias=biased, qk_norm=QKNorm(self.rms_norm_eps))

    def network(self) -> FeedForward:
        """Gated network, with biases where attention has them."""
        return FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=True,
            bias=self.attention_bias,
            activation=self.hidden_act,
        )

    def joined(self) -> GatedMerger:
        """What joins patches, as wide as the class has it."""
        return replace(super().joined(), width=self.out_hidden_size * self.in_channels)

    def architecture(self) -> Transformer:
        """Patches, pre-norm blocks, a norm and the merger. Raises ConfigError."""
        return self.whole(self.joined(), final_norm=self.norm())
