"""Helium: Llama's block, whose heads share the hidden size."""

from typing import ClassVar

from tfacct.architecture.parts import Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._llama_like import LlamaLike

RELEASED = "2025-01"


class Config(LlamaLike):
    """`HeliumConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 48000
    hidden_size: Count = 2560
    intermediate_size: Count = 7040
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 20
    num_key_value_heads: Count = 20
    head_dim: Count = 128
    max_position_embeddings: Count = 4096
    attention_bias: Switch = False
    mlp_bias: Switch = False
    rms_norm_eps: Real = 1e-8
    rope_theta: Real | None = 100_000.0

    stems: ClassVar = ("Helium",)

    def rotary(self) -> Rotary:
        """Neighbouring elements turn together."""
        return LlamaLike.rotary(self)._replace(pairs="neighbours")

    def architecture(self) -> Transformer:
        """attention_bias is on q, k and v, mlp_bias on all three of the network."""
        self.whole_heads()
        attention = self.attention(qkv_bias=self.attention_bias)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward(bias=self.mlp_bias))))
