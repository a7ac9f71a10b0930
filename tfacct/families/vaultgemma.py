"""VaultGemma: Gemma 2 without the norms behind attention and network."""

from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real
from tfacct.families._endings import DECODER
from tfacct.families._gemma_windows import GemmaWindows

RELEASED = "2025-09"


class Config(GemmaWindows):
    """`VaultGemmaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 256000
    hidden_size: Count = 2304
    num_hidden_layers: Layers = 26
    num_attention_heads: Count = 8
    final_logit_softcapping: Real | None = 30.0
    attn_logit_softcapping: Real | None = 50.0

    stems: ClassVar = ("VaultGemma",)
    heads: ClassVar = DECODER

    def architecture(self) -> Transformer:
        """Gemma 2's blocks. Raises ConfigError."""
        if self.use_bidirectional_attention:
            raise self.refused("use_bidirectional_attention", True)
        return GemmaWindows.architecture(self)

    def slides(self, number: int) -> bool:
        """Even layers, counted from 0."""
        return number % 2 == 0

    def windowed_block(self, attention: Attention, network: FeedForward) -> Block:
        """Norms in front only."""
        return self.block(attention, network)
