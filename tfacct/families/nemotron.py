"""Nemotron-4 and Minitron: LayerNorms around 1, a network of two matrices with squared ReLU."""

from typing import ClassVar

from tfacct.architecture.parts import FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch, Word
from tfacct.families._part_rotated import PartRotated

RELEASED = "2024-02"


class Config(PartRotated):
    """`NemotronConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 256000
    hidden_size: Count = 6144
    intermediate_size: Count = 24576
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 48
    max_position_embeddings: Count = 4096
    partial_rotary_factor: Fraction = 0.5
    attention_bias: Switch = False
    mlp_bias: Switch = False
    hidden_act: Word = "relu2"
    norm_eps: Real = 1e-5

    stems: ClassVar = ("Nemotron",)
    uncounted: ClassVar = PartRotated.uncounted | {"norm_eps"}
    aliases: ClassVar = {"rope_percent": "partial_rotary_factor", "rope_percentage": "partial_rotary_factor"}

    def norm(self) -> Norm:
        """LayerNorm over the hidden size; its weight is the scale less 1."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.norm_eps, less_one=True)

    def architecture(self) -> Transformer:
        """Llama's attention and a network without a gate."""
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias)
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=self.mlp_bias, activation=self.activation
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
