"""Shared by Cohere's families: attention and network side by side behind one norm; a tied head with scaled logits."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Experts, FeedForward, Head, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import LlamaLike


class CohereLike(LlamaLike):
    """The fields that Cohere's families spell alike, with their classes' defaults."""

    vocab_size: Count = 256000
    hidden_size: Count = 8192
    intermediate_size: Count = 22528
    num_hidden_layers: Layers = 40
    num_attention_heads: Count = 64
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 8192
    tie_word_embeddings: Switch = True
    attention_bias: Switch = False
    layer_norm_eps: Real = 1e-5
    logit_scale: Real = 0.0625

    uncounted: ClassVar = LlamaLike.uncounted | {"layer_norm_eps", "logit_scale"}
    heads: ClassVar = DECODER
    harmless: ClassVar = frozenset(
        """
        use_parallel_block use_parallel_embedding use_embedding_sharing use_gated_activation position_embedding_type
        rotary_pct layer_switch order_of_interleaved_layers
        """.split()
    )

    def norm(self) -> Norm:
        """LayerNorm with a scale and no shift."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps, learned="scale")

    def rotary(self) -> Rotary:
        """Neighbouring elements turn together."""
        return LlamaLike.rotary(self)._replace(pairs="neighbours")

    def attention(self, **own: Any) -> Attention:
        """attention_bias is on all four projections."""
        return LlamaLike.attention(self, **{"qkv_bias": self.attention_bias, "out_bias": self.attention_bias, **own})

    def beside(self, attention: Attention, network: FeedForward | Experts | None = None) -> Block:
        """Attention and network side by side behind one norm."""
        return Block((Sublayer(attention, self.norm()), Sublayer(network or self.feed_forward())), "parallel")

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Logits times a constant."""
        head = Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=self.tie_word_embeddings,
            logit_scale=self.logit_scale,
        )
        return LlamaLike.decoder(self, blocks, **{"head": head, **own})
