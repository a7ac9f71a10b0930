"""mBART: BART with a norm in front of every sublayer, and a last one on each side."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, LAYERS_DROPPED, PreNorm
from tfacct.families._base import Count, Switch
from tfacct.families.bart import OFFSET

RELEASED = "2020-01"


class Config(PreNorm):
    """`MBartConfig`, with its class's defaults."""

    vocab_size: Count = 50265
    normalize_embedding: Switch = True

    dropouts: ClassVar = DROPOUTS
    changes_training: ClassVar = LAYERS_DROPPED
    stems: ClassVar = ("MBart",)
    understood: ClassVar = {
        **PreNorm.understood,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    }
    gotchas: ClassVar = (
        "Norms stand in front of the sublayers, behind the tables, and behind the last block of each side.",
        "Both position tables have two rows more than max_position_embeddings, 1,026 for 1,024. They are counted.",
        "tie_word_embeddings = false is refused: the class then stores a third table, which nothing reads.",
        "normalize_before, add_final_layer_norm, static_position_embeddings or normalize_embedding other than mBART's"
        " are refused: the class does not read them.",
    )

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side has positions and a norm behind them."""
        rows = self.max_position_embeddings + OFFSET
        return self.around(Positions(rows=rows, hidden=self.d_model, offset=OFFSET), normed=True)
