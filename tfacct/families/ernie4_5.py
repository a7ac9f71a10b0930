"""ERNIE 4.5, the dense models: Llama's block, with biases everywhere or nowhere and a tied head."""

from typing import ClassVar

from tfacct.architecture.parts import Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import OWN_SHARE, LlamaLike

RELEASED = "2025-06"


class Config(LlamaLike):
    """`Ernie4_5Config`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 103424
    hidden_size: Count = 1024
    intermediate_size: Count = 3072
    num_hidden_layers: Layers = 18
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 2
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    tie_word_embeddings: Switch = True
    use_bias: Switch = False
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 500_000.0

    dropouts: ClassVar = {}
    stems: ClassVar = ("Ernie4_5", "Ernie4_5_")
    harmless: ClassVar = frozenset("compression_ratio rope_is_neox_style use_3d_rope use_flash_attention".split())
    heads: ClassVar = DECODER
    nulls: ClassVar = {**OWN_SHARE}

    def rotary(self) -> Rotary:
        """Neighbouring elements turn together."""
        return LlamaLike.rotary(self)._replace(pairs="neighbours")

    def architecture(self) -> Transformer:
        """use_bias is on every product but the head."""
        attention = self.attention(qkv_bias=self.use_bias, out_bias=self.use_bias)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward(bias=self.use_bias))))
