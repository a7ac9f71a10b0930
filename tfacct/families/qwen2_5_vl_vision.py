"""Qwen2.5-VL's encoder of images: most of its blocks attend in windows of patches, and a merger stands behind all."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, UpTo
from tfacct.families._qwen_vision import LARGEST, PATHS, QwenVision

RELEASED = "2025-01"


class Config(QwenVision):
    """`Qwen2_5_VLVisionConfig`, with its class's defaults."""

    hidden_size: Count = 3584
    intermediate_size: Count = 3420
    window_size: Count = 112
    out_hidden_size: Count = 3584
    fullatt_block_indexes: tuple[UpTo, ...] = (7, 15, 23, 31)

    stems: ClassVar = ("Qwen2_5_VisionTransformerPretrained",)
    norms: ClassVar = "rms"
    hf_paths: ClassVar = {
        **PATHS,
        **{f"blocks.*.mlp.{name}_proj": f"blocks.*.mlp.{name}_proj" for name in ("gate", "up", "down")},
        "merger.norm": "merger.ln_q",
        "merger.up_proj": "merger.mlp.0",
        "merger.down_proj": "merger.mlp.2",
    }

    @property
    def hidden(self) -> int:
        """hidden_size."""
        return self.hidden_size

    @property
    def side(self) -> int:
        """Patches on a side of a window. Raises ConfigError."""
        merged = self.window_size // self.spatial_merge_size // self.patch_size
        if merged == 0:
            raise ConfigError(
                f"window_size = {self.window_size:,} is smaller than {self.spatial_merge_size:,} patches of"
                f" {self.patch_size:,}, which are merged"
            )
        return merged * self.spatial_merge_size

    @property
    def tiles(self) -> tuple[int, ...]:
        """Sides of a window, and of what is merged."""
        return (self.side, self.spatial_merge_size) if self._windowed else (self.spatial_merge_size,)

    @property
    def context(self) -> int:
        """Patches of the largest image that the image processor takes by default, in full windows."""
        largest = LARGEST * self.spatial_merge_size**2
        return max(largest - largest % self.side**2, self.side**2) if self._windowed else largest

    @property
    def _windowed(self) -> bool:
        return not {*range(self.depth)} <= {*self.fullatt_block_indexes}

    def network(self) -> FeedForward:
        """Gated network with biases."""
        width = self.intermediate_size
        return FeedForward(hidden=self.hidden_size, width=width, gated=True, bias=True, activation=self.hidden_act)

    def architecture(self) -> Transformer:
        """Patches, pre-norm blocks with windows or without, and the merger. Raises ConfigError."""
        whole = Block.of(self.attention(), self.network(), norm=self.norm())
        window = self.side**2 if self._windowed else None
        windowed = Block.of(replace(self.attention(), tiles=window), self.network(), norm=self.norm())
        every = [whole if number in self.fullatt_block_indexes else windowed for number in range(self.depth)]
        return self.whole(self.merger(self.out_hidden_size), *stacks(every))
