"""Grok-1: norms before and behind attention and experts, bounded scores; every layer has experts."""

from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, Experts, Head, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, even, share
from tfacct.families._endings import CAUSAL_MODEL
from tfacct.families._experts import check_active

RELEASED = "2024-03"


class Config(FamilyConfig):
    """`Grok1Config` of the port that its published files in PyTorch come with. No field that counts has a default."""

    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    num_key_value_heads: Count
    num_experts: Count
    num_experts_per_tok: Count
    max_position_embeddings: Count
    tie_word_embeddings: Switch = True
    residual_moe: Switch = False
    hidden_act: Word = "gelu"
    rms_norm_eps: Real = 1e-5
    rope_theta: Real = 10_000.0
    attn_output_multiplier: Real = 1.0
    max_attn_value: Real = 30.0
    embedding_multiplier_scale: Real = 1.0
    output_multiplier_scale: Real = 1.0

    stems: ClassVar = ("Grok1Model", "Grok1")
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    uncounted: ClassVar = frozenset(
        """
        residual_moe hidden_act rms_norm_eps rope_theta attn_output_multiplier max_attn_value embedding_multiplier_scale
        output_multiplier_scale
        """.split()
    )
    harmless: ClassVar = frozenset({"output_router_logits", "router_aux_loss_coef"})
    aliases: ClassVar = {"num_local_experts": "num_experts"}

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Equal blocks, norms on both sides of attention and experts. Raises ConfigError."""
        if self.residual_moe:
            raise self.refused("residual_moe", self.residual_moe)
        hidden, heads, kv_heads = self.hidden_size, self.num_attention_heads, self.num_key_value_heads
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        norm = Norm(hidden=hidden, kind="rms", eps=self.rms_norm_eps)
        attention = Attention(
            hidden=hidden,
            kv_heads=kv_heads,
            group=share(heads, kv_heads, "num_attention_heads by num_key_value_heads"),
            head_dim=even(share(hidden, heads, "hidden_size by num_attention_heads")),
            rotary=Rotary(self.rope_theta),
            scale=self.attn_output_multiplier,
            softcap=self.max_attn_value,
        )
        experts = Experts(
            hidden=hidden,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.hidden_act,
        )
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden, scaled=True, factor=self.embedding_multiplier_scale),
            stacks=stacks([Block.of(attention, experts, norm=norm, post_norm=norm)] * self.num_hidden_layers),
            final_norm=norm,
            head=Head(
                hidden=hidden,
                vocab=self.vocab_size,
                tied=self.tie_word_embeddings,
                logit_scale=self.output_multiplier_scale,
            ),
        )
