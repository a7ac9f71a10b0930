"""MPNet: BERT's encoder, with positions behind the padding token's row and scores of the distances between tokens."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, Positions, RelativeBias
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count
from tfacct.families._bert_like import LM_HEAD, BertLike, class_table

RELEASED = "2020-04"

ATTENTION = {
    **{f"attn.{ours}": f"attention.attn.{ours[0]}" for ours in ("q_proj", "k_proj", "v_proj", "o_proj")},
    **dict.fromkeys(("attn.scores", "attn.values"), "attention.attn"),
    "attn_norm": "attention.LayerNorm",
}
PADDING = 1
"""Row of the position table that is the padding token's, whatever its id: the class has no other."""


class Config(BertLike):
    """`MPNetConfig`, with its class's defaults: `MPNetForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 30527
    relative_attention_num_buckets: Count = 32

    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.1),
        "residual": ("hidden_dropout_prob", 0.1),
        "attention": ("attention_probs_dropout_prob", 0.1),
        "classifier": ("hidden_dropout_prob", 0.1),
    }
    stems: ClassVar = ("MPNet",)
    head_act: ClassVar = "gelu"
    body: ClassVar = "mpnet."
    hf_paths: ClassVar = {
        **class_table("mpnet.", LM_HEAD, rel_bias="encoder.relative_attention_bias"),
        **{f"blocks.*.{ours}": f"mpnet.encoder.layer.*.{theirs}" for ours, theirs in ATTENTION.items()},
    }
    hf_tensors: ClassVar = {"lm_head.bias": "lm_head.bias"}

    @property
    def context(self) -> int:
        """max_position_embeddings, less the rows that stand for no position."""
        return self.max_position_embeddings - PADDING - 1

    def attention(self) -> Attention:
        """With the scores of distances."""
        return replace(super().attention(), biased=True)

    def distances(self) -> RelativeBias:
        """A score for each head and bucket."""
        return RelativeBias(buckets=self.relative_attention_num_buckets, kv_heads=self.num_attention_heads, group=1)

    def positions(self) -> Positions:
        """Table whose first rows stand for no position. Raises ConfigError where no row is left."""
        if self.context < 1:
            raise ConfigError(f"max_position_embeddings must be at least 3, not {self.max_position_embeddings:,}")
        return Positions(rows=self.max_position_embeddings, hidden=self.hidden_size, offset=PADDING + 1)
