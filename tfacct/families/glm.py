"""GLM-4-9B: Llama's block with biases on q, k and v; half of each head rotated."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._glm_like import GlmLike

RELEASED = "2024-06"


class Config(GlmLike):
    """`GlmConfig`, with its class's defaults, sizes too."""

    stems: ClassVar = ("Glm",)

    def architecture(self) -> Transformer:
        """A norm in front of attention and of the network."""
        attention = self.attention(qkv_bias=self.attention_bias)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward())))
