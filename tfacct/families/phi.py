"""Phi-1, 1.5 and 2: attention and network side by side after one norm; biases everywhere, even on the head."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import (
    Count,
    FamilyConfig,
    Fields,
    Fraction,
    Layers,
    Real,
    Switch,
    Word,
    even,
    rotary,
    share,
    turned_part,
)
from tfacct.families._endings import LABELLING

RELEASED = "2023-06"


class Config(FamilyConfig):
    """`PhiConfig`, with its class's defaults."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    intermediate_size: Count = 8192
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    qk_layernorm: Switch = False
    tie_word_embeddings: Switch = False
    hidden_act: Word = "gelu_new"
    layer_norm_eps: Real = 1e-5
    partial_rotary_factor: Fraction = 0.5
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None

    dropouts: ClassVar = {
        "embedding": ("embd_pdrop", 0.0),
        "residual": ("resid_pdrop", 0.0),
        "attention": ("attention_dropout", 0.0),
    }
    stems: ClassVar = ("Phi",)
    uncounted: ClassVar = frozenset(
        "hidden_act layer_norm_eps partial_rotary_factor rope_theta rope_scaling rope_parameters".split()
    )
    heads: ClassVar = LABELLING
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": "model.layers.*.input_layernorm",
        "blocks.*.attn.q_proj": "model.layers.*.self_attn.q_proj",
        "blocks.*.attn.k_proj": "model.layers.*.self_attn.k_proj",
        "blocks.*.attn.v_proj": "model.layers.*.self_attn.v_proj",
        "blocks.*.attn.q_norm": "model.layers.*.self_attn.q_layernorm",
        "blocks.*.attn.k_norm": "model.layers.*.self_attn.k_layernorm",
        "blocks.*.attn.scores": "model.layers.*.self_attn",
        "blocks.*.attn.values": "model.layers.*.self_attn",
        "blocks.*.attn.o_proj": "model.layers.*.self_attn.dense",
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.fc1",
        "blocks.*.mlp.down_proj": "model.layers.*.mlp.fc2",
        "final_norm": "model.final_layernorm",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """One norm for attention and network; a part of each head is rotated by its position."""
        hidden, heads, kv_heads = self.hidden_size, self.num_attention_heads, self.num_key_value_heads
        head_dim = share(hidden, heads, "hidden_size by num_attention_heads")
        attention = Attention(
            hidden=hidden,
            kv_heads=kv_heads,
            group=share(heads, kv_heads, "num_attention_heads by num_key_value_heads"),
            head_dim=head_dim,
            qkv_bias=True,
            out_bias=True,
            rotary=rotary(self.rope_theta, self.rope_scaling, self.rope_parameters),
            rope_dim=even(
                int(head_dim * turned_part(self.partial_rotary_factor, self.rope_parameters)),
                "partial_rotary_factor · head_dim =",
            ),
            qk_norm=QKNorm(self.layer_norm_eps, kind="layer") if self.qk_layernorm else None,
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_eps)
        network = FeedForward(hidden=hidden, width=self.intermediate_size, bias=True, activation=self.hidden_act)
        block = Block((Sublayer(attention, norm), Sublayer(network)), "parallel")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([block] * self.num_hidden_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=True),
        )
