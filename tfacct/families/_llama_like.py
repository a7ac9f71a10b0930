"""What Llama and its relatives share: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture import Block, Stack, Transformer
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, even, share
from tfacct.parts import Attention, Embedding, FeedForward, Head, Norm, Rotary


def head_dim_from(fields: dict[str, Any]) -> int:
    """hidden_size / num_attention_heads, which the class takes where head_dim is absent."""
    hidden, heads = fields["hidden_size"], fields["num_attention_heads"]
    return share(hidden, heads, "hidden_size by num_attention_heads", "give head_dim, or sizes that divide")


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

    uncounted: ClassVar = frozenset({"hidden_act", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters"})
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
        """Angles, as transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters) spells them."""
        spelled = self.rope_parameters or self.rope_scaling
        base = (spelled or {}).get("rope_theta") or self.rope_theta or 10_000.0
        return Rotary(base, spelled)

    def with_biases(
        self,
        *,
        qkv: bool,
        out: bool,
        mlp: bool,
        qk_norm_eps: float | None = None,
        less_one: bool = False,
        scaled: bool = False,
    ) -> Transformer:
        """Equal pre-norm blocks, with biases, norms of queries and keys, and scales where the family has them."""
        hidden = self.hidden_size
        norm = Norm(hidden, "rms", self.rms_norm_eps, less_one)
        attn = Attention(
            hidden=hidden,
            kv_heads=self.num_key_value_heads,
            group=share(
                self.num_attention_heads,
                self.num_key_value_heads,
                "num_attention_heads by num_key_value_heads",
            ),
            head_dim=even(self.head_dim),
            qkv_bias=qkv,
            out_bias=out,
            rotary=self.rotary(),
            qk_norm_eps=qk_norm_eps,
        )
        feed_forward = FeedForward(hidden, self.intermediate_size, gated=True, bias=mlp, activation=self.activation)
        return Transformer(
            embed=Embedding(self.vocab_size, hidden, scaled),
            stacks=(Stack(Block(norm, attn, norm, feed_forward), self.num_hidden_layers),),
            final_norm=norm,
            head=Head(hidden, self.vocab_size, tied=self.tie_word_embeddings),
        )
