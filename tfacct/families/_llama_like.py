"""Shared by Llama and its relatives: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, Experts, FeedForward, Head, LatentAttention, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, even, rotary, share
from tfacct.families._endings import LABELLING, Ending


def head_dim_from(fields: dict[str, Any]) -> int:
    """hidden_size / num_attention_heads, which the class takes where head_dim is absent."""
    hidden, heads = fields["hidden_size"], fields["num_attention_heads"]
    return share(hidden, heads, "hidden_size by num_attention_heads", "give head_dim, or sizes that divide")


OWN_SHARE: Mapping[str, str] = {
    "num_key_value_heads": "num_attention_heads",
    "head_dim": "hidden_size / num_attention_heads",
}
"""Fields that are null where they follow from others, in classes that have numbers for them if they are absent."""

QK_NORM_PATHS = {f"blocks.*.attn.{name}": f"model.layers.*.self_attn.{name}" for name in ("q_norm", "k_norm")}
"""Norms of queries and keys, where a class has them."""


class LlamaLike(FamilyConfig):
    """The fields that Llama's relatives spell alike, and the blocks they describe."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    intermediate_size: Count
    num_key_value_heads: Count
    head_dim: Count = Field(default_factory=head_dim_from)
    max_position_embeddings: Count
    tie_word_embeddings: Switch = False
    hidden_act: Word = "silu"
    rms_norm_eps: Real = 1e-6
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None

    dropouts: ClassVar[Mapping[str, tuple[str, float | None]]] = {"attention": ("attention_dropout", 0.0)}
    uncounted: ClassVar = frozenset({"hidden_act", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters"})
    heads: ClassVar[Mapping[str, Ending]] = LABELLING
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": "model.layers.*.input_layernorm",
        "blocks.*.attn.q_proj": "model.layers.*.self_attn.q_proj",
        "blocks.*.attn.k_proj": "model.layers.*.self_attn.k_proj",
        "blocks.*.attn.v_proj": "model.layers.*.self_attn.v_proj",
        "blocks.*.attn.scores": "model.layers.*.self_attn",
        "blocks.*.attn.values": "model.layers.*.self_attn",
        "blocks.*.attn.o_proj": "model.layers.*.self_attn.o_proj",
        "blocks.*.mlp_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp.gate_proj": "model.layers.*.mlp.gate_proj",
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.up_proj",
        "blocks.*.mlp.down_proj": "model.layers.*.mlp.down_proj",
        "final_norm": "model.norm",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    @property
    def activation(self) -> str:
        """The activation that the class really runs."""
        return self.hidden_act

    def rotary(self) -> Rotary:
        """Angles, as either version of transformers spells them."""
        return rotary(self.rope_theta, self.rope_scaling, self.rope_parameters)

    def norm(self) -> Norm:
        """RMSNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps)

    def attention(self, **own: Any) -> Attention:
        """Grouped-query attention; `own` is what the family has beside its sizes."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        return Attention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(heads, kv_heads, "num_attention_heads by num_key_value_heads"),
            head_dim=even(self.head_dim),
            **{"rotary": self.rotary(), **own},
        )

    def whole_heads(self) -> None:
        """Refuse heads that do not share the hidden size, where the class cannot run them. Raises ConfigError."""
        if self.head_dim * self.num_attention_heads != self.hidden_size:
            raise self.refused("head_dim", self.head_dim)

    def feed_forward(self, *, bias: bool = False) -> FeedForward:
        """A gated network."""
        return FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, gated=True, bias=bias, activation=self.activation
        )

    def block(self, attention: Attention | LatentAttention, network: FeedForward | Experts) -> Block:
        """A pre-norm block."""
        return Block.of(attention, network, norm=self.norm())

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Blocks between the token table and the head; `own` replaces what the family has of its own."""
        ends = {
            "embed": Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            "final_norm": self.norm(),
            "head": Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        }
        return Transformer(stacks=stacks(blocks), **{**ends, **own})

    def equal_blocks(self, block: Block) -> list[Block]:
        """The same block in every layer."""
        return [block] * self.num_hidden_layers
