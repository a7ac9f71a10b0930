"""TeleChat 1 and 2: Llama's block with biases on the last product of attention and of the network."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, even, share
from tfacct.families._endings import CAUSAL_MODEL

RELEASED = "2024-01"


class Config(FamilyConfig):
    """`TelechatConfig` and `Telechat2Config` of its own code. No size has a default, nor has the head."""

    vocab_size: Count
    hidden_size: Count
    n_layer: Layers
    n_head: Count
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["n_head"])
    ffn_hidden_size: Count
    tie_word_embeddings: Switch
    max_position_embeddings: Count | None = None
    seq_length: Count | None = None
    training_seqlen: Count = 8192
    embed_layernorm: Switch = False
    apply_residual_connection_post_layernorm: Switch = False
    layer_norm_epsilon: Real = 1e-5

    stems: ClassVar = ("Telechat", "Telechat2", "TeleChat", "TeleChat2")
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    uncounted: ClassVar = frozenset(
        {"embed_layernorm", "apply_residual_connection_post_layernorm", "layer_norm_epsilon"}
    )
    harmless: ClassVar = frozenset({"base_seqlen", "flash_attn", "intermediate_size", "logn"})
    aliases: ClassVar = {
        "n_embed": "hidden_size",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings, else seq_length, else training_seqlen."""
        return self.max_position_embeddings or self.seq_length or self.training_seqlen

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks. Raises ConfigError."""
        for name in ("embed_layernorm", "apply_residual_connection_post_layernorm"):
            if getattr(self, name):
                raise self.refused(name, getattr(self, name))
        hidden = self.hidden_size
        norm = Norm(hidden=hidden, kind="rms", eps=self.layer_norm_epsilon)
        attention = Attention(
            hidden=hidden,
            kv_heads=self.num_key_value_heads,
            group=share(self.n_head, self.num_key_value_heads, "n_head by num_key_value_heads"),
            head_dim=even(share(hidden, self.n_head, "hidden_size by n_head")),
            out_bias=True,
            rotary=Rotary(10_000.0),
        )
        network = FeedForward(hidden=hidden, width=self.ffn_hidden_size, gated=True, down_bias=True, activation="silu")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([Block.of(attention, network, norm=norm)] * self.n_layer),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
