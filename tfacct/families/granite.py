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
    gotchas: ClassVar[tuple[str, ...]] = (
        "Parameters, products and cache are Llama's. embedding_multiplier, residual_multiplier and logits_scaling are "
        "pointwise work, done even where they are 1; attention_multiplier stands in place of head_dim^−½.",
        "Logits are divided by logits_scaling. Published configs tie the head and say so; the class's default does "
        "not.",
    )

    @property
    def logit_scale(self) -> float:
        """1 / logits_scaling."""
        return 1 / self.logits_scaling

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections, mlp_bias on all three."""
        return self.decoder(self.equal_blocks(self.granite_block()))
