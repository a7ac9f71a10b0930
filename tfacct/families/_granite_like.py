"""Shared by Granite and HyperCLOVA X: Llama's block with constants that multiply embeddings, results and logits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Embedding, Experts, Head
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import LlamaLike


class GraniteLike(LlamaLike):
    """The fields that both spell alike, with their classes' defaults."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    mlp_bias: Switch = False
    embedding_multiplier: Real = 1.0
    logits_scaling: Real = 1.0
    residual_multiplier: Real = 1.0
    attention_multiplier: Real | None = None

    uncounted: ClassVar = LlamaLike.uncounted | {
        "embedding_multiplier",
        "logits_scaling",
        "residual_multiplier",
        "attention_multiplier",
    }
    in_files: ClassVar = (
        (r"\.input_linear\.weight$", ".experts.gate_up_proj"),
        (r"\.output_linear\.weight$", ".experts.down_proj"),
        (r"\.router\.layer\.", ".router."),
    )
    heads: ClassVar = DECODER

    @property
    def logit_scale(self) -> float:
        """Factor of the logits."""
        raise NotImplementedError

    def granite_block(self, network: Experts | None = None, *, post_norm: bool = False, **own: Any) -> Block:
        """Llama's block, whose results are multiplied before they are added; `own` is what its attention has beside."""
        attention = self.attention(
            qkv_bias=self.attention_bias, out_bias=self.attention_bias, scale=self.attention_multiplier, **own
        )
        behind = self.norm() if post_norm else None
        block = Block.of(
            attention, network or self.feed_forward(bias=self.mlp_bias), norm=self.norm(), post_norm=behind
        )
        added = (replace(one, factor=self.residual_multiplier) for one in block.sublayers)
        return replace(block, sublayers=tuple(added))

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Token rows and logits times constants."""
        return scaled(self, blocks, self.embedding_multiplier, self.logit_scale, **own)


def scaled(config: LlamaLike, blocks: Sequence[Block], rows: float, logits: float, **own: Any) -> Transformer:
    """Llama's model, whose token rows and logits are multiplied by constants."""
    vocab, hidden, tied = config.vocab_size, config.hidden_size, config.tie_word_embeddings
    ends = {
        "embed": Embedding(vocab=vocab, hidden=hidden, scaled=True, factor=rows),
        "head": Head(vocab=vocab, hidden=hidden, tied=tied, logit_scale=logits),
    }
    return LlamaLike.decoder(config, blocks, **{**ends, **own})
