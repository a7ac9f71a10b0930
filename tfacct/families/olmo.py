"""OLMo 1: Llama's block, with LayerNorms that have no parameters."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import CLASSIFYING
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-02"


class Config(LlamaLike):
    """`OlmoConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50304
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    clip_qkv: Real | None = None

    stems: ClassVar = ("Olmo", "OLMo")  # some files write OLMo
    uncounted: ClassVar = LlamaLike.uncounted | {"clip_qkv"}
    heads: ClassVar = CLASSIFYING

    def norm(self) -> Norm:
        """LayerNorm without parameters."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=1e-5, learned="none")

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections."""
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias, clip=self.clip_qkv)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward())))
