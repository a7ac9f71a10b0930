"""BART: learned positions with two rows to spare, and a norm after the tables."""

from typing import Any, ClassVar

from tfacct.architecture.parts import Pooler, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, LAYERS_DROPPED, BartLike
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
    changes_training: ClassVar = LAYERS_DROPPED
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
    gotchas: ClassVar[tuple[str, ...]] = (
        "Both position tables have two rows more than max_position_embeddings, 1,026 for 1,024. They are counted.",
        "BartModel, which some published configs name, has no head. Without `architectures` the tied head is counted:"
        " it has FLOPs but no parameters. The bias of the logits is a buffer of zeros and is not counted.",
        "BartForSequenceClassification reads the same text on both sides, and scores classes behind a product of the"
        " position at the decoder's last end of a text.",
        "tie_word_embeddings = false is refused: the class then stores a third table, which nothing reads.",
        "normalize_before, add_final_layer_norm, static_position_embeddings or normalize_embedding other than BART's"
        " are refused: the class does not read them.",
    )

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
