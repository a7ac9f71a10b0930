"""HyperCLOVA X: Granite's block, with a norm behind attention and network too."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Switch
from tfacct.families._granite_like import GraniteLike

RELEASED = "2025-07"


class Config(GraniteLike):
    """`HyperCLOVAXConfig`, with its class's defaults, sizes too."""

    use_post_norm: Switch = True

    stems: ClassVar = ("HyperCLOVAX",)
    hf_paths: ClassVar = {
        **GraniteLike.hf_paths,
        "blocks.*.attn_post_norm": "model.layers.*.post_norm1",
        "blocks.*.mlp_post_norm": "model.layers.*.post_norm2",
    }

    @property
    def logit_scale(self) -> float:
        """logits_scaling."""
        return self.logits_scaling

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections, mlp_bias on all three."""
        return self.decoder(self.equal_blocks(self.granite_block(post_norm=self.use_post_norm)))
