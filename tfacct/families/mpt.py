"""MPT: ALiBi, LayerNorms without shift, no biases, a network four times as wide as the model."""

from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, share, shown
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED

RELEASED = "2023-05"

READ = frozenset(("clip_qkv", "softmax_scale"))
AS_BUILT = {"attn_type": "multihead_attention", "alibi": True, "qk_ln": False, "prefix_lm": False}
"""Fields of attn_config that the class does not read, and what it builds."""


class Config(FamilyConfig):
    """`MptConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50368
    d_model: Count = 2048
    n_layers: Layers = 24
    n_heads: Count = 16
    max_seq_len: Count = 2048
    expansion_ratio: Count = 4
    no_bias: Switch = True
    tie_word_embeddings: Switch = True
    attn_config: Fields | None = None
    layer_norm_epsilon: Real = 1e-5

    stems: ClassVar = ("Mpt", "MPT")  # the published files write MPT
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"expansion_ratio", "no_bias", "layer_norm_epsilon"})
    harmless: ClassVar = frozenset(
        "learned_pos_emb embedding_fraction init_device init_config logit_scale norm_type verbose".split()
    )
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
    }
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.wte",
        "blocks.*.attn_norm": "transformer.blocks.*.norm_1",
        "blocks.*.attn.q_proj": "transformer.blocks.*.attn.Wqkv",
        "blocks.*.attn.k_proj": "transformer.blocks.*.attn.Wqkv",
        "blocks.*.attn.v_proj": "transformer.blocks.*.attn.Wqkv",
        "blocks.*.attn.scores": "transformer.blocks.*.attn",
        "blocks.*.attn.values": "transformer.blocks.*.attn",
        "blocks.*.attn.o_proj": "transformer.blocks.*.attn.out_proj",
        "blocks.*.mlp_norm": "transformer.blocks.*.norm_2",
        "blocks.*.mlp.up_proj": "transformer.blocks.*.ffn.up_proj",
        "blocks.*.mlp.down_proj": "transformer.blocks.*.ffn.down_proj",
        "final_norm": "transformer.norm_f",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_seq_len."""
        return self.max_seq_len

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks. Raises ConfigError where a field says what the class does not build."""
        own, hidden = self.attn_config or {}, self.d_model
        for name, built in AS_BUILT.items():
            if own.get(name, built) != built:
                raise ConfigError(f"attn_config.{name} = {shown(own[name])}: the class builds {shown(built)} only")
        for name, value, built in (("expansion_ratio", self.expansion_ratio, 4), ("no_bias", self.no_bias, True)):
            if value != built:
                raise ConfigError(f"{name} = {shown(value)}: the class builds {shown(built)} only")
        for name in READ:
            factor = own.get(name)
            if factor is not None and (isinstance(factor, bool) or not isinstance(factor, (int, float)) or factor <= 0):
                raise ConfigError(f"attn_config.{name} must be a number above 0, not {shown(factor)}")
        attention = Attention(
            hidden=hidden,
            kv_heads=self.n_heads,
            group=1,
            head_dim=share(hidden, self.n_heads, "d_model by n_heads"),
            alibi=True,
            clip=own.get("clip_qkv"),
            scale=own.get("softmax_scale"),
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon, learned="scale")
        network = FeedForward(hidden=hidden, width=4 * hidden, activation="gelu")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([Block.of(attention, network, norm=norm)] * self.n_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
