"""MiniCPM 1 to 4 (dense): Llama's block; constants multiply token rows, results and what the head reads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._granite_like import scaled
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-02"


class Config(LlamaLike):
    """`MiniCPMConfig` of its own code, with its defaults, sizes too. The head is tied unless the config says
    otherwise."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    tie_word_embeddings: Switch = True
    attention_bias: Switch = False
    scale_emb: Real = 1.0
    scale_depth: Real = 1.0
    dim_model_base: Real = 1.0

    stems: ClassVar = ("MiniCPM", "Granite")
    class_type: ClassVar = "granite"
    uncounted: ClassVar = LlamaLike.uncounted | {"scale_emb", "scale_depth", "dim_model_base"}
    heads: ClassVar = DECODER
    harmless: ClassVar = frozenset({"mup_denominator"})

    @property
    def depth_scale(self) -> float:
        """Factor of what attention and network give."""
        return float(self.scale_depth / self.num_hidden_layers**0.5)

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Token rows and logits times constants."""
        return scaled(self, blocks, self.scale_emb, self.dim_model_base / self.hidden_size, **own)

    def architecture(self) -> Transformer:
        """Equal blocks, whose results are multiplied before they are added. Raises ConfigError."""
        self.whole_heads()
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias)
        block = self.block(attention, self.feed_forward())
        added = tuple(replace(one, factor=self.depth_scale) for one in block.sublayers)
        return self.decoder(self.equal_blocks(replace(block, sublayers=added)))

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields, with their defaults, and its constants, by Granite's names."""
        return {
            **self.model_dump(exclude={"scale_emb", "scale_depth", "dim_model_base"}, exclude_none=True),
            "embedding_multiplier": self.scale_emb,
            "residual_multiplier": self.depth_scale,
            "logits_scaling": self.hidden_size / self.dim_model_base,
            "attention_multiplier": self.head_dim**-0.5,
        }
