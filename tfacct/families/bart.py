"""BART: learned positions with two rows to spare, and a norm after the tables."""

from typing import Any, ClassVar

from tfacct.architecture.parts import Pooler, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, BartLike
from tfacct.families._base import Count, Switch
from tfacct.families._endings import BODY, SEQ2SEQ, Ending

RELEASED = "2019-10"

OFFSET = 2
"""Rows in front of the first position's."""


class Config(BartLike):
    """`model_type = "bart"`."""

    vocab_size: Count = 50265
    normalize_embedding: Switch = True
    static_position_embeddings: Switch = False

    dropouts: ClassVar = DROPOUTS
    stems: ClassVar = ("Bart",)
    uncounted: ClassVar = BartLike.uncounted | {"normalize_embedding", "static_position_embeddings"}
    heads: ClassVar = {
        "ForConditionalGeneration": SEQ2SEQ,
        "Model": BODY,
        "ForSequenceClassification": Ending(
            "AutoModelForSequenceClassification",
            "classes",
            pooler=True,
            bias=True,
            paths={"pooler": "classification_head.dense", "classifier": "classification_head.out_proj"},
        ),
    }

    def pooler(self, hidden: Any) -> Pooler:
        """What stands in front of the classes of a text."""
        return Pooler(hidden=hidden, reads="end")

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked about its forward pass."""
        if self.ending.head == "classes":
            return "it looks for the end of each text among its ids, and those that it is asked with are random"
        return None

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side has positions and a norm behind them."""
        for name, understood in (("normalize_embedding", True), ("static_position_embeddings", False)):
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        return self.ends(
            Positions(rows=self.max_position_embeddings + OFFSET, hidden=self.d_model, offset=OFFSET), normed=True
        )
