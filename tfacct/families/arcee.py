"""Arcee's AFM: Llama's attention, and a network of two matrices with squared ReLU."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, Word
from tfacct.families._llama_like import LlamaLike

RELEASED = "2025-06"


class Config(LlamaLike):
    """`ArceeConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 2560
    intermediate_size: Count = 18432
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 4096
    attention_bias: Switch = False
    mlp_bias: Switch = False
    hidden_act: Word = "relu2"
    rms_norm_eps: Real = 1e-5

    stems: ClassVar = ("Arcee",)

    def architecture(self) -> Transformer:
        """A network without a gate."""
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias)
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=self.mlp_bias, activation=self.activation
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
