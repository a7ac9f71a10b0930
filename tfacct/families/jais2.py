"""Jais 2: Llama's attention with biases, LayerNorms, and a network of two matrices with squared ReLU."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, Word
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import LlamaLike

RELEASED = "2025-12"


class Config(LlamaLike):
    """`Jais2Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 150272
    hidden_size: Count = 3328
    intermediate_size: Count = 26624
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 26
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 8192
    attention_bias: Switch = True
    mlp_bias: Switch = True
    hidden_act: Word = "relu2"
    layer_norm_eps: Real = 1e-5

    stems: ClassVar = ("Jais2",)
    uncounted: ClassVar = LlamaLike.uncounted | {"layer_norm_eps"}
    heads: ClassVar = DECODER

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)

    def architecture(self) -> Transformer:
        """A network without a gate."""
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias)
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=self.mlp_bias, activation=self.activation
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
