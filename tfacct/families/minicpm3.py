"""MiniCPM3: latent attention in dense blocks; constants multiply token rows, results and what the head reads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Embedding, Head, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, share
from tfacct.families._endings import CLASSIFYING
from tfacct.families._latent_like import LatentLike

RELEASED = "2024-09"


class Config(LatentLike):
    """`MiniCPM3Config`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 73448
    hidden_size: Count = 2560
    intermediate_size: Count = 6400
    num_hidden_layers: Layers = 62
    num_attention_heads: Count = 40
    num_key_value_heads: Count = 40
    max_position_embeddings: Count = 32768
    tie_word_embeddings: Switch = True
    rms_norm_eps: Real = 1e-5
    q_lora_rank: Count | None = 768
    kv_lora_rank: Count = 256
    qk_nope_head_dim: Count = 64
    qk_rope_head_dim: Count = 32
    v_head_dim: Count = Field(
        default_factory=lambda fields: share(
            fields["hidden_size"], fields["num_attention_heads"], "hidden_size by num_attention_heads"
        )
    )
    scale_emb: Real = 12.0
    scale_depth: Real | None = 1.4
    dim_model_base: Count | None = 256

    stems: ClassVar = ("MiniCPM3",)
    uncounted: ClassVar = LatentLike.uncounted | {"scale_emb", "scale_depth", "dim_model_base"}
    heads: ClassVar = CLASSIFYING

    def latent(self) -> LatentAttention:
        """Latent attention whose turned numbers pair up by halves."""
        part = LatentLike.latent(self)
        return replace(part, rotary=part.rotary and part.rotary._replace(pairs="halves"))

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Token rows and logits times constants."""
        vocab, hidden = self.vocab_size, self.hidden_size
        scale = (self.dim_model_base or hidden) / hidden
        ends = {
            "embed": Embedding(vocab=vocab, hidden=hidden, scaled=True, factor=self.scale_emb),
            "head": Head(hidden=hidden, vocab=vocab, tied=self.tie_word_embeddings, logit_scale=scale),
        }
        return LatentLike.decoder(self, blocks, **{**ends, **own})

    def architecture(self) -> Transformer:
        """Equal blocks, whose results are multiplied before they are added."""
        block = self.block(self.latent(), self.feed_forward())
        factor = 1.0 if self.scale_depth is None else self.scale_depth / self.num_hidden_layers**0.5
        added = tuple(replace(one, factor=factor) for one in block.sublayers)
        return self.decoder(self.equal_blocks(replace(block, sublayers=added)))
