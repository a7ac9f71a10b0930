"""DeBERTa v2 and v3: BERT's blocks, with scores of the distance between two tokens beside those of their contents."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, Disentangled, Distances, FirstConvolution
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, UpTo, Word
from tfacct.families._bert_like import LAYER
from tfacct.families._deberta_like import BODY_AT, LAYERS_AT, PRODUCTS, DebertaLike

RELEASED = "2020-06"

PROJECTIONS = {
    "attn.q_proj": "attention.self.query_proj",
    "attn.k_proj": "attention.self.key_proj",
    "attn.v_proj": "attention.self.value_proj",
}
THEIRS = {**LAYER, **PROJECTIONS, **PRODUCTS}
POSITIONS = {
    True: {"attn.pos_k_proj": "attention.self.key_proj", "attn.pos_q_proj": "attention.self.query_proj"},
    False: {"attn.pos_k_proj": "attention.self.pos_key_proj", "attn.pos_q_proj": "attention.self.pos_query_proj"},
}
"""Products of the distances, with weights of the tokens' or of their own."""


class Config(DebertaLike):
    """`DebertaV2Config`, with its class's defaults: `DebertaV2ForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 128100
    hidden_size: Count = 1536
    num_hidden_layers: Count = 24
    num_attention_heads: Count = 24
    intermediate_size: Count = 6144
    position_buckets: int = -1
    share_att_key: Switch = False
    norm_rel_ebd: Word = "none"
    attention_head_size: Count | None = None
    conv_kernel_size: UpTo = 0
    conv_groups: Count = 1
    conv_act: Word = "tanh"

    stems: ClassVar = ("DebertaV2",)
    uncounted: ClassVar = DebertaLike.uncounted | {"conv_groups", "conv_act"}
    hf_paths: ClassVar = {
        **DebertaLike.hf_paths,
        "rel_embed.norm": f"{BODY_AT}encoder.LayerNorm",
        "first_conv": f"{BODY_AT}encoder.conv.conv",
        "first_conv.norm": f"{BODY_AT}encoder.conv.LayerNorm",
        **{f"blocks.*.{ours}": f"{LAYERS_AT}{theirs}" for ours, theirs in THEIRS.items()},
    }

    def class_paths(self) -> dict[str, str]:
        """Distances with the tokens' weights or their own."""
        own = {f"blocks.*.{ours}": f"{LAYERS_AT}{theirs}" for ours, theirs in POSITIONS[self.share_att_key].items()}
        return {**super().class_paths(), **own}

    @property
    def normed(self) -> bool:
        """Whether the table of distances is behind a norm."""
        return "layer_norm" in [word.strip() for word in self.norm_rel_ebd.lower().split("|")]

    @property
    def rows(self) -> int:
        """Rows of the table of distances."""
        return 2 * (self.position_buckets if self.position_buckets > 0 else self.reach)

    def attention(self) -> Attention:
        """Heads with keys of their own, and scores of distances where they are switched on."""
        plain = super().attention()
        if not self.relative_attention:
            return plain
        return Disentangled(
            **self.scored(plain),
            distances=self.rows,
            shared=self.share_att_key,
            reach=self.reach,
            bucketed=self.position_buckets > 0,
        )

    def check(self) -> None:
        """Refuse what no part here expresses. Raises ConfigError."""
        super().check()
        if self.attention_head_size not in (None, self.hidden_size // self.num_attention_heads):
            raise self.refused("attention_head_size", self.attention_head_size)
        if self.conv_kernel_size and (self.conv_groups != 1 or self.conv_kernel_size % 2 == 0):
            name = "conv_groups" if self.conv_groups != 1 else "conv_kernel_size"
            raise self.refused(name, getattr(self, name))
        if not self.relative_attention and self.normed:  # a norm of nothing, which the class stores
            raise self.refused("norm_rel_ebd", self.norm_rel_ebd)

    def architecture(self) -> Transformer:
        """BERT's, with a table of distances in front."""
        shape = super().architecture()
        if self.conv_kernel_size:
            kernel, act = self.conv_kernel_size, self.conv_act
            conv = FirstConvolution(hidden=self.hidden_size, kernel=kernel, activation=act, eps=self.layer_norm_eps)
            shape = replace(shape, beside=conv)
        if not self.relative_attention:
            return shape
        table = Distances(buckets=self.rows, hidden=self.hidden_size, normed=self.normed, eps=self.layer_norm_eps)
        return replace(shape, distances=table)
