"""Falcon: 7B (one key/value head, one norm for attention and network), 40B (grouped, two norms), 1B with ALiBi."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Order, Sublayer, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, even, rotary, share
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED

RELEASED = "2023-05"


class Config(FamilyConfig):
    """`FalconConfig`, with its class's defaults. The head is tied unless the config says otherwise."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    ffn_hidden_size: Count = Field(default_factory=lambda fields: 4 * fields["hidden_size"])
    max_position_embeddings: Count = 2048
    new_decoder_architecture: Switch = False
    multi_query: Switch = True
    num_kv_heads: Count | None = None
    parallel_attn: Switch = True
    num_ln_in_parallel_attn: Count | None = None
    bias: Switch = False
    alibi: Switch = False
    tie_word_embeddings: Switch = True
    activation: Word = "gelu"
    layer_norm_epsilon: Real = 1e-5
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None

    dropouts: ClassVar = {"residual": ("hidden_dropout", 0.0)}
    stems: ClassVar = ("Falcon",)
    fixed: ClassVar = frozenset()
    uncounted: ClassVar = frozenset(
        "alibi activation layer_norm_epsilon rope_theta rope_scaling rope_parameters".split()
    )
    harmless: ClassVar = frozenset({"apply_residual_connection_post_layernorm", "seq_length"})
    class_differs: ClassVar = "it keeps a copy for each query head"
    aliases: ClassVar = {"n_embed": "hidden_size"}
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.word_embeddings",
        "blocks.*.attn_norm": "transformer.h.*.input_layernorm",
        "blocks.*.attn.q_proj": "transformer.h.*.self_attention.query_key_value",
        "blocks.*.attn.k_proj": "transformer.h.*.self_attention.query_key_value",
        "blocks.*.attn.v_proj": "transformer.h.*.self_attention.query_key_value",
        "blocks.*.attn.scores": "transformer.h.*.self_attention",
        "blocks.*.attn.values": "transformer.h.*.self_attention",
        "blocks.*.attn.o_proj": "transformer.h.*.self_attention.dense",
        "blocks.*.mlp_norm": "transformer.h.*.post_attention_layernorm",
        "blocks.*.mlp.up_proj": "transformer.h.*.mlp.dense_h_to_4h",
        "blocks.*.mlp.down_proj": "transformer.h.*.mlp.dense_4h_to_h",
        "final_norm": "transformer.ln_f",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    @property
    def two_norms(self) -> bool:
        """True if attention and network, side by side, have a norm each."""
        return self.new_decoder_architecture and self.num_ln_in_parallel_attn in (None, 2)

    @property
    def kv_heads(self) -> int:
        """40B says how many; of the others the one, or as many as there are query heads."""
        if self.new_decoder_architecture:
            return self.num_kv_heads or self.num_attention_heads
        return 1 if self.multi_query else self.num_attention_heads

    def class_paths(self) -> Mapping[str, str]:
        """The class names its norms by the layout."""
        if not self.two_norms:
            return self.hf_paths
        norms = {"blocks.*.attn_norm": "transformer.h.*.ln_attn", "blocks.*.mlp_norm": "transformer.h.*.ln_mlp"}
        return {**self.hf_paths, **norms}

    def class_keeps(self) -> Transformer:
        """The class copies grouped keys and values to every query head before it keeps them."""
        shape = self.transformer()
        return shape.with_kv_heads(None) if self.new_decoder_architecture else shape

    def architecture(self) -> Transformer:
        """Side by side, but where parallel_attn is false one after the other."""
        self._check_layout()
        hidden, heads = self.hidden_size, self.num_attention_heads
        head_dim = share(hidden, heads, "hidden_size by num_attention_heads")
        attention = Attention(
            hidden=hidden,
            kv_heads=self.kv_heads,
            group=share(heads, self.kv_heads, "num_attention_heads by num_kv_heads"),
            head_dim=head_dim,
            qkv_bias=self.bias,
            out_bias=self.bias,
            alibi=self.alibi,
        )
        if not self.alibi:
            turn = rotary(self.rope_theta, self.rope_scaling, self.rope_parameters)
            attention = replace(attention, rotary=turn, head_dim=even(head_dim))
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        network = FeedForward(hidden=hidden, width=self.ffn_hidden_size, bias=self.bias, activation=self.activation)
        alone = self.parallel_attn and not self.two_norms
        order: Order = "parallel" if self.parallel_attn else "pre"
        block = Block((Sublayer(attention, norm), Sublayer(network, None if alone else norm)), order)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([block] * self.num_hidden_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def _check_layout(self) -> None:
        """Refuse layouts that the class cannot run."""
        if self.new_decoder_architecture and not self.parallel_attn:
            raise ConfigError("new_decoder_architecture is always parallel, and parallel_attn is false")
        if self.num_ln_in_parallel_attn == 2 and not self.new_decoder_architecture:
            raise ConfigError("num_ln_in_parallel_attn = 2 needs new_decoder_architecture = true")
        grouped = self.num_kv_heads not in (None, self.num_attention_heads)
        if grouped and not self.new_decoder_architecture and not self.multi_query:
            raise ConfigError(f"num_kv_heads = {self.num_kv_heads:,} needs new_decoder_architecture = true")
        if self.num_ln_in_parallel_attn not in (None, 1, 2):
            raise ConfigError(f"num_ln_in_parallel_attn must be 1 or 2, not {self.num_ln_in_parallel_attn:,}")
