"""GLM-4-0414: GLM-4-9B's block, with norms in front of attention and network and behind them."""

from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.transformer import Transformer
from tfacct.families._glm_like import GlmLike

RELEASED = "2025-04"


class Config(GlmLike):
    """`Glm4Config`, with its class's defaults, sizes too."""

    stems: ClassVar = ("Glm4",)
    hf_paths: ClassVar = {
        **GlmLike.hf_paths,
        "blocks.*.attn_post_norm": "model.layers.*.post_self_attn_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_mlp_layernorm",
    }

    def architecture(self) -> Transformer:
        """Two norms around attention and two around the network."""
        attention, network = self.attention(qkv_bias=self.attention_bias), self.feed_forward()
        block = Block.of(attention, network, norm=self.norm(), post_norm=self.norm())
        return self.decoder(self.equal_blocks(block))
