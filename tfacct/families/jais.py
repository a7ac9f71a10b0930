"""Jais: GPT-2's block, scores lowered by distance (ALiBi), a gated network."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, share
from tfacct.families._endings import CAUSAL_MODEL

RELEASED = "2023-08"

GATED, ALIBI = "swiglu", "alibi"


class Config(FamilyConfig):
    """`JAISConfig` of its own code. What Cerebras' BTLM is too, in another name."""

    vocab_size: Count
    n_embd: Count
    n_layer: Layers
    n_head: Count
    n_positions: Count
    n_inner: Count = Field(default_factory=lambda fields: 4 * fields["n_embd"])
    position_embedding_type: Word = "learned"
    activation_function: Word = "gelu_new"
    tie_word_embeddings: Switch = True
    layer_norm_epsilon: Real = 1e-5
    mup_embeddings_scale: Real = 1.0
    mup_scale_qk_dot_by_d: Switch = False
    mup_width_scale: Real = 1.0
    mup_output_alpha: Real = 1.0
    alibi_scaling: Fields | None = None

    stems: ClassVar = ("JAIS",)
    heads: ClassVar = {"LMHeadModel": CAUSAL_MODEL}
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset(
        """
        layer_norm_epsilon mup_embeddings_scale mup_scale_qk_dot_by_d mup_width_scale mup_output_alpha alibi_scaling
        """.split()
    )
    harmless: ClassVar = frozenset(
        "scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn pretrained_model".split()
    )
    aliases: ClassVar = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "embeddings_scale": "mup_embeddings_scale",
        "scale_qk_dot_by_d": "mup_scale_qk_dot_by_d",
        "width_scale": "mup_width_scale",
    }

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks; heads of n_embd / n_head. Raises ConfigError."""
        hidden, head_dim = self.n_embd, share(self.n_embd, self.n_head, "n_embd by n_head")
        if self.position_embedding_type not in ("learned", ALIBI):
            raise self.refused("position_embedding_type", self.position_embedding_type)
        lowered, gated = self.position_embedding_type == ALIBI, self.activation_function == GATED
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        attention = Attention(
            hidden=hidden,
            kv_heads=self.n_head,
            group=1,
            head_dim=head_dim,
            qkv_bias=True,
            out_bias=True,
            alibi=lowered,
            scale=1 / head_dim if self.mup_scale_qk_dot_by_d else None,
        )
        activation = "silu" if gated else self.activation_function
        network = FeedForward(hidden=hidden, width=self.n_inner, gated=gated, bias=True, activation=activation)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden, scaled=True, factor=self.mup_embeddings_scale),
            positions=None if lowered else Positions(rows=self.n_positions, hidden=hidden),
            stacks=stacks([Block.of(attention, network, norm=norm)] * self.n_layer),
            final_norm=norm,
            head=Head(
                hidden=hidden,
                vocab=self.vocab_size,
                tied=self.tie_word_embeddings,
                logit_scale=self.mup_output_alpha * self.mup_width_scale,
            ),
        )
