"""Pegasus: a norm in front of every sublayer, and sine positions that are stored but not trained."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, LAYERS_DROPPED, PreNorm
from tfacct.families._base import Count, Switch

RELEASED = "2019-12"


class Config(PreNorm):
    """`PegasusConfig`, with its class's defaults."""

    vocab_size: Count = 50265
    static_position_embeddings: Switch = True

    dropouts: ClassVar = DROPOUTS
    changes_training: ClassVar = LAYERS_DROPPED
    stems: ClassVar = ("Pegasus",)
    understood: ClassVar = {
        **PreNorm.understood,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    }
    gotchas: ClassVar = (
        "Each side stores a table of the sines and cosines of its positions with the weights. It is counted, as the"
        " class counts it, but not trained.",
        "Norms stand in front of the sublayers and behind the last block of each side; there is none behind the"
        " tables.",
        "tie_word_embeddings = false is refused: the class then stores further tables, which nothing reads.",
    )

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side has its own positions."""
        rows = self.max_position_embeddings
        return self.around(Positions(rows=rows, hidden=self.d_model, trained=False))
