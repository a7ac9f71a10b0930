"""nanochat: Llama's blocks with a network of two matrices; norms have no weights, and the logits are bounded."""

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import FeedForward, Head, Norm, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, Word
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2025-10"


class Config(LlamaLike):
    """`NanoChatConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50304
    hidden_size: Count = 768
    intermediate_size: Count = 8192
    num_hidden_layers: Layers = 12
    num_attention_heads: Count = 6
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    hidden_act: Word = "relu2"
    attention_bias: Switch = False
    final_logit_softcapping: Real | None = 15.0

    stems: ClassVar = ("NanoChat",)
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in LlamaLike.hf_paths.items() if ours.endswith(("attn_norm", "mlp_norm"))},
        **QK_NORM_PATHS,
        **dict.fromkeys(("embed_norm", "final_norm"), "model.norm"),
        **{ours: theirs for ours, theirs in LlamaLike.hf_paths.items() if "norm" not in ours and ".gate_" not in ours},
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.fc1",
        "blocks.*.mlp.down_proj": "model.layers.*.mlp.fc2",
    }

    def norm(self) -> Norm:
        """RMSNorm without a weight."""
        return replace(LlamaLike.norm(self), learned="none")

    def rotary(self) -> Rotary:
        """Pairs turn the other way."""
        return LlamaLike.rotary(self)._replace(backwards=True)

    def feed_forward(self, *, bias: bool = False) -> FeedForward:
        """Two matrices."""
        return replace(LlamaLike.feed_forward(self, bias=bias), gated=False)

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections."""
        biased = {"qkv_bias": self.attention_bias, "out_bias": self.attention_bias}
        attention = self.attention(qk_norm=QKNorm(self.rms_norm_eps, late=True, learned=False), **biased)
        head = Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=self.tie_word_embeddings,
            softcap=self.final_logit_softcapping,
        )
        block = self.block(attention, self.feed_forward())
        return self.decoder(self.equal_blocks(block), embed_norm=self.norm(), head=head)
