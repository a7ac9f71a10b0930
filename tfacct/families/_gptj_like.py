"""Shared by GPT-J and CodeGen: attention and network side by side behind one norm; biases on network and head only."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, even, share
from tfacct.families.gpt2 import Config as Gpt2


class GPTJLike(FamilyConfig):
    """The fields that both spell alike, with their classes' defaults."""

    vocab_size: Count = 50400
    n_embd: Count = 4096
    n_layer: Layers = 28
    n_head: Count = 16
    n_positions: Count = 2048
    n_inner: Count = Field(default_factory=lambda fields: 4 * fields["n_embd"])
    rotary_dim: Count = 64
    tie_word_embeddings: Switch = False
    activation_function: Word = "gelu_new"
    layer_norm_epsilon: Real = 1e-5

    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"rotary_dim", "activation_function", "layer_norm_epsilon"})
    harmless: ClassVar = frozenset(
        """
        n_ctx rotary scale_attn_weights
        summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
        """.split()
    )
    aliases: ClassVar = Gpt2.aliases
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.wte",
        "blocks.*.attn_norm": "transformer.h.*.ln_1",
        "blocks.*.attn.q_proj": "transformer.h.*.attn.q_proj",
        "blocks.*.attn.k_proj": "transformer.h.*.attn.k_proj",
        "blocks.*.attn.v_proj": "transformer.h.*.attn.v_proj",
        "blocks.*.attn.scores": "transformer.h.*.attn",
        "blocks.*.attn.values": "transformer.h.*.attn",
        "blocks.*.attn.o_proj": "transformer.h.*.attn.out_proj",
        "blocks.*.mlp.up_proj": "transformer.h.*.mlp.fc_in",
        "blocks.*.mlp.down_proj": "transformer.h.*.mlp.fc_out",
        "final_norm": "transformer.ln_f",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def architecture(self) -> Transformer:
        """One norm for attention and network. Raises ConfigError where rotary_dim does not fit a head."""
        hidden = self.n_embd
        head_dim = share(hidden, self.n_head, "n_embd by n_head")
        if self.rotary_dim > head_dim:
            raise ConfigError(
                f"rotary_dim = {self.rotary_dim:,}, but a head has n_embd / n_head = {head_dim:,} elements"
            )
        attention = Attention(
            hidden=hidden,
            kv_heads=self.n_head,
            group=1,
            head_dim=head_dim,
            rotary=Rotary(10_000.0, None, "neighbours"),
            rope_dim=even(self.rotary_dim, "rotary_dim ="),
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        network = FeedForward(hidden=hidden, width=self.n_inner, bias=True, activation=self.activation_function)
        block = Block((Sublayer(attention, norm), Sublayer(network)), "parallel")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([block] * self.n_layer),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=True),
        )
