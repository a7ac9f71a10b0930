"""Seed-OSS: Llama's block with biases on q, k and v."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._llama_like import OWN_SHARE, LlamaLike

RELEASED = "2025-08"


class Config(LlamaLike):
    """`SeedOssConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 155136
    hidden_size: Count = 4096
    intermediate_size: Count = 27648
    num_hidden_layers: Layers = 64
    num_attention_heads: Count = 80
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 524288
    attention_bias: Switch = True
    attention_out_bias: Switch = False
    mlp_bias: Switch = False

    dropouts: ClassVar = {
        "residual": ("residual_dropout", 0.1),
        "attention": ("attention_dropout", 0.1),
    }
    stems: ClassVar = ("SeedOss",)
    nulls: ClassVar = {**OWN_SHARE}

    def architecture(self) -> Transformer:
        """Biases of q, k and v, of o, and of the network each have a field."""
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_out_bias)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward(bias=self.mlp_bias))))
