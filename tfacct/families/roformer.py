"""RoFormer: BERT's encoder with rotary positions, whose sines and cosines are stored with the weights."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Pooler, Positions, Rotary, Turns
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, even
from tfacct.families._bert_like import ENCODING, AbleToDecode, class_table
from tfacct.families._endings import BODY

RELEASED = "2021-04"

HEAD = {"lm_head.transform": "transform.dense", "lm_head.norm": "transform.LayerNorm", "lm_head": "decoder"}
BASE = 10_000.0
"""Base of the angles in the class."""


class Config(AbleToDecode):
    """`RoFormerConfig`, with its class's defaults: `RoFormerForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 50000
    embedding_size: Count | None = None
    max_position_embeddings: Count = 1536
    rotary_value: Switch = False

    stems: ClassVar = ("RoFormer",)
    uncounted: ClassVar = AbleToDecode.uncounted | {"rotary_value"}
    understood: ClassVar = {**AbleToDecode.understood, "rotary_value": False}
    heads: ClassVar = {**ENCODING, "Model": BODY}
    body: ClassVar = "roformer."
    hf_paths: ClassVar = {
        **class_table("roformer.", {ours: f"cls.predictions.{theirs}" for ours, theirs in HEAD.items()}),
        "embed.project": "roformer.embeddings_project",
        "turns": "roformer.encoder.embed_positions",
    }
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the first position, and the networks' activation."""
        return Pooler(hidden=hidden, activation=self.hidden_act)

    def attention(self) -> Attention:
        """BERT's, of which neighbours turn together."""
        plain = super().attention()
        return replace(
            plain, head_dim=even(plain.head_dim, "the size of a head"), rotary=Rotary(BASE, pairs="neighbours")
        )

    def positions(self) -> Positions | None:
        """None are added to the rows of tokens."""
        return None

    def architecture(self) -> Transformer:
        """BERT's, and the table by which its heads turn."""
        turns = Turns(rows=self.max_position_embeddings, head_dim=self.attention().head_dim)
        return replace(super().architecture(), turns=turns)
