"""BitNet b1.58: Llama's block, with norms in front of the last products of attention and network."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, Word
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import LlamaLike

RELEASED = "2025-04"


class Config(LlamaLike):
    """`BitNetConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 128256
    hidden_size: Count = 2560
    intermediate_size: Count = 6912
    num_hidden_layers: Layers = 30
    num_attention_heads: Count = 20
    num_key_value_heads: Count = 5
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    hidden_act: Word = "relu2"
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 500_000.0

    stems: ClassVar = ("BitNet",)
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        "blocks.*.attn.read_norm": "model.layers.*.self_attn.attn_sub_norm",
        "blocks.*.mlp.inner_norm": "model.layers.*.mlp.ffn_sub_norm",
    }
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections."""
        self.whole_heads()
        biased = self.attention_bias
        attention = self.attention(qkv_bias=biased, out_bias=biased, read_norm=self.rms_norm_eps)
        network = replace(self.feed_forward(), inner_norm=self.rms_norm_eps)
        return self.decoder(self.equal_blocks(self.block(attention, network)))
