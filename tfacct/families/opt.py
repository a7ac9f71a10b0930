"""OPT: learned positions with two rows in front; 350m has narrower tokens, and norms after each addition."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Switch, Word, share
from tfacct.families._endings import CLASSIFYING

RELEASED = "2022-05"

OFFSET = 2
"""Rows of the position table before that of the first token."""


class Config(FamilyConfig):
    """`OPTConfig`, with its class's defaults. The head is tied unless the config says otherwise."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    ffn_dim: Count = 3072
    max_position_embeddings: Count = 2048
    word_embed_proj_dim: Count | None = None
    do_layer_norm_before: Switch = True
    enable_bias: Switch = True
    layer_norm_elementwise_affine: Switch = True
    remove_final_layer_norm: Switch = False
    tie_word_embeddings: Switch = True
    activation_function: Word = "relu"

    dropouts: ClassVar = {"residual": ("dropout", 0.1), "attention": ("attention_dropout", 0.0)}
    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 50272,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    }
    stems: ClassVar = ("OPT",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"activation_function"})
    harmless: ClassVar = frozenset({"layerdrop", "init_std"})
    aliases: ClassVar = {"_remove_final_layer_norm": "remove_final_layer_norm"}
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {
        "embed": "model.decoder.embed_tokens",
        "embed.project": "model.decoder.project_in",
        "pos_embed": "model.decoder.embed_positions",
        "blocks.*.attn_norm": "model.decoder.layers.*.self_attn_layer_norm",
        "blocks.*.attn.q_proj": "model.decoder.layers.*.self_attn.q_proj",
        "blocks.*.attn.k_proj": "model.decoder.layers.*.self_attn.k_proj",
        "blocks.*.attn.v_proj": "model.decoder.layers.*.self_attn.v_proj",
        "blocks.*.attn.scores": "model.decoder.layers.*.self_attn",
        "blocks.*.attn.values": "model.decoder.layers.*.self_attn",
        "blocks.*.attn.o_proj": "model.decoder.layers.*.self_attn.out_proj",
        "blocks.*.mlp_norm": "model.decoder.layers.*.final_layer_norm",
        "blocks.*.mlp.up_proj": "model.decoder.layers.*.fc1",
        "blocks.*.mlp.down_proj": "model.decoder.layers.*.fc2",
        "final_norm": "model.decoder.final_layer_norm",
        "lm_head.project": "model.decoder.project_out",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Pre-norm blocks and a last norm, or, without do_layer_norm_before, post-norm blocks and none."""
        if not self.layer_norm_elementwise_affine:
            raise self.refused("layer_norm_elementwise_affine", False)
        hidden, heads = self.hidden_size, self.num_attention_heads
        width = None if self.word_embed_proj_dim in (None, hidden) else self.word_embed_proj_dim
        if width is not None and self.ending.head != "lm":
            raise ConfigError(
                f"word_embed_proj_dim = {width:,}: a body, or classes, with tokens narrower than hidden_size are not"
                " understood"
            )
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=share(hidden, heads, "hidden_size by num_attention_heads"),
            qkv_bias=self.enable_bias,
            out_bias=self.enable_bias,
        )
        norm = Norm(hidden=hidden, kind="layer")
        network = FeedForward(
            hidden=hidden, width=self.ffn_dim, bias=self.enable_bias, activation=self.activation_function
        )
        block = Block.of(attention, network, norm=norm, order="pre" if self.do_layer_norm_before else "post")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden, width=width),
            positions=Positions(rows=self.max_position_embeddings + OFFSET, hidden=hidden, offset=OFFSET),
            stacks=stacks([block] * self.num_hidden_layers),
            final_norm=norm if self.do_layer_norm_before and not self.remove_final_layer_norm else None,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings, width=width),
        )
