"""Hunyuan's dense models: Llama's block, with norms of queries and keys behind their rotation."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._hunyuan_like import HunyuanLike

RELEASED = "2025-07"


class Config(HunyuanLike):
    """`HunYuanDenseV1Config`, with its class's defaults, sizes too."""

    stems: ClassVar = ("HunYuanDenseV1",)

    def architecture(self) -> Transformer:
        """Equal blocks."""
        return self.decoder(self.equal_blocks(self.block(self.attention(), self.feed_forward())))
