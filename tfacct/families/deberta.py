"""DeBERTa: BERT's blocks, with scores of the distance between two tokens, of as many distances as a text has."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, Disentangled, Distances
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Switch
from tfacct.families._bert_like import LAYER
from tfacct.families._deberta_like import LAYERS_AT, PRODUCTS, DebertaLike

RELEASED = "2020-06"

TOGETHER = dict.fromkeys(("attn.q_proj", "attn.k_proj", "attn.v_proj"), "attention.self.in_proj")
POSITIONS = {"attn.pos_k_proj": "attention.self.pos_proj", "attn.pos_q_proj": "attention.self.pos_q_proj"}
THEIRS = {**LAYER, **TOGETHER, **PRODUCTS, **POSITIONS}


class Config(DebertaLike):
    """`DebertaConfig`, with its class's defaults: `DebertaForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 50265
    talking_head: Switch = False

    stems: ClassVar = ("Deberta",)
    fixed: ClassVar = DebertaLike.fixed | {"Xd"}
    uncounted: ClassVar = DebertaLike.uncounted | {"talking_head"}
    hf_paths: ClassVar = {
        **DebertaLike.hf_paths,
        **{f"blocks.*.{ours}": f"{LAYERS_AT}{theirs}" for ours, theirs in THEIRS.items()},
    }
    hf_tensors: ClassVar = {
        **DebertaLike.hf_tensors,
        "blocks.*.attn.q_proj.bias": f"{LAYERS_AT}attention.self.q_bias",
        "blocks.*.attn.v_proj.bias": f"{LAYERS_AT}attention.self.v_bias",
    }

    def attention(self) -> Attention:
        """Heads with keys of their own, and scores of distances where they are switched on."""
        plain = replace(super().attention(), key_bias=False)
        if not self.relative_attention:
            return plain
        return Disentangled(**self.scored(plain), key_bias=False, distances=None, shared=False, reach=self.reach)

    def check(self) -> None:
        """Refuse what no part here expresses. Raises ConfigError."""
        super().check()
        if self.talking_head:
            raise self.refused("talking_head", self.talking_head)
        if self.relative_attention and self.reach < self.max_position_embeddings:
            raise ConfigError(
                f"max_relative_positions = {self.reach:,} is less than max_position_embeddings ="
                f" {self.max_position_embeddings:,}: a text may be longer than its table, and no part here counts that"
            )

    def architecture(self) -> Transformer:
        """BERT's, with a table of distances in front."""
        shape = super().architecture()
        if not self.relative_attention:
            return shape
        table = Distances(buckets=2 * self.reach, hidden=self.hidden_size, normed=False, of_text=True)
        return replace(shape, distances=table)
