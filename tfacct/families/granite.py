"""Granite 3 and 4 (dense): Llama's block; constants multiply embeddings, scores, results and logits."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Real
from tfacct.families._granite_like import GraniteLike

RELEASED = "2024-08"


class Config(GraniteLike):
    """`GraniteConfig`, with its class's defaults, sizes too."""

    attention_multiplier: Real | None = 1.0

    stems: ClassVar = ("Granite",)

    @property
    def logit_scale(self) -> float:
        """1 / logits_scaling."""
        return 1 / self.logits_scaling

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections, mlp_bias on all three."""
        return self.decoder(self.equal_blocks(self.granite_block()))
