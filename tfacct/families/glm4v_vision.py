"""GLM-4.1V's encoder of images: gated blocks behind a norm, turned by row and column, and a merger with a network."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, FeedForward, GatedMerger, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Real, Switch
from tfacct.families._qwen_vision import PATHS, QwenVision

RELEASED = "2025-07"

NETWORK = ("gate", "up", "down")
ENDS = {
    "final_norm": "post_layernorm",
    "merger.join": "downsample",
    "merger.proj": "merger.proj",
    "merger.norm": "merger.post_projection_norm",
    **{path: path for at in ("merger", "blocks.*.mlp") for path in (f"{at}.{name}_proj" for name in NETWORK)},
}
"""Modules that all of GLM's encoders have, ours → the class's."""


class Config(QwenVision):
    """`Glm4vVisionConfig`, with its class's defaults."""

    depth: Count = 24
    hidden_size: Count = 1536
    attention_bias: Switch = False
    num_heads: Count = 12
    image_size: Count = 336
    rms_norm_eps: Real = 1e-5
    out_hidden_size: Count = 4096
    intermediate_size: Count = 13696

    stems: ClassVar = ("Glm4vVision",)
    uncounted: ClassVar = QwenVision.uncounted | {"rms_norm_eps"}
    patch_bias: ClassVar = True
    norms: ClassVar = "rms"
    hf_paths: ClassVar = {
        **PATHS,
        "embed.norm": "post_conv_layernorm",
        "pos_embed": "embeddings.position_embedding",
        **ENDS,
    }

    @property
    def context(self) -> int:
        """Patches of a square image of image_size that are merged. Raises ConfigError."""
        side = self.image_size // self.patch_size
        return max(side - side % self.spatial_merge_size, self.spatial_merge_size) ** 2

    @property
    def hidden(self) -> int:
        """hidden_size."""
        return self.hidden_size

    @property
    def eps(self) -> float:
        """rms_norm_eps."""
        return self.rms_norm_eps

    def attention(self) -> Attention:
        """Heads whose first products have biases where attention_bias says so. Raises ConfigError."""
        return replace(super().attention(), qkv_bias=self.attention_bias, out_bias=False)

    def network(self) -> FeedForward:
        """Gated network without biases."""
        width = self.out_hidden_size
        return FeedForward(hidden=self.hidden_size, width=width, gated=True, activation=self.hidden_act)

    def joined(self) -> GatedMerger:
        """What joins patches behind the blocks."""
        return GatedMerger(
            hidden=self.hidden_size,
            patches=self.spatial_merge_size**2,
            out=self.out_hidden_size,
            width=self.intermediate_size,
            activation=self.hidden_act,
        )

    def architecture(self) -> Transformer:
        """Patches and a norm, positions, pre-norm blocks, a norm and the merger. Raises ConfigError."""
        side = self.image_size // self.patch_size
        if side == 0:
            raise ConfigError(f"image_size {self.image_size:,} is smaller than patch_size {self.patch_size:,}")
        positions = Positions(rows=side**2, hidden=self.hidden_size, tiles=self.tiles)
        return self.whole(self.joined(), positions=positions, final_norm=self.norm())
