"""OLMo 2: norms after attention and network instead of before; norms over all queries and all keys together."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Switch
from tfacct.families._endings import CLASSIFYING
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2024-11"


class Config(LlamaLike):
    """`Olmo2Config`, with its class's defaults."""

    intermediate_size: Count = 11008
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    rms_norm_eps: Real = 1e-5

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 50304,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    stems: ClassVar = ("Olmo2",)
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
    }
    heads: ClassVar = CLASSIFYING

    def olmo_block(self, **own: Any) -> Block:
        """Norms behind attention and network, and over all queries and all keys; `own` is attention's in one layer."""
        attention = self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps, together=True),
            **own,
        )
        return Block.of(attention, self.feed_forward(), post_norm=self.norm())

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections."""
        return self.decoder(self.equal_blocks(self.olmo_block()))
