"""Llama 1 to 3.2: RMSNorm, rotary positions, grouped-query attention, a gated network, no biases."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch
from tfacct.families._llama_like import LlamaLike

RELEASED = "2023-02"


class Config(LlamaLike):
    """`LlamaConfig`, with its class's defaults."""

    intermediate_size: Count = 11008
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    mlp_bias: Switch = False

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    stems: ClassVar = ("Llama", "LLaMA")  # some files write LLaMA

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections, mlp_bias on all three."""
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward(bias=self.mlp_bias))))
