"""M2M-100 and NLLB: a norm in front of every sublayer, and sines for positions, computed and not stored."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, PreNorm
from tfacct.families._base import Count, Switch, Word
from tfacct.families.bart import OFFSET

RELEASED = "2020-10"


class Config(PreNorm):
    """`M2M100Config`, with its class's defaults. NLLB-200's dense models are of this family."""

    vocab_size: Count = 128112
    activation_function: Word = "relu"
    scale_embedding: Switch = True

    dropouts: ClassVar = {**DROPOUTS, "attention": ("attention_dropout", 0.1)}
    stems: ClassVar = ("M2M100",)
    understood: ClassVar = {
        **PreNorm.understood,
        "normalize_embedding": False,
        "static_position_embeddings": False,
    }

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side adds sines."""
        rows = self.max_position_embeddings + OFFSET
        sines = Positions(rows=rows, hidden=self.d_model, offset=OFFSET, stored=False, halves=True)
        return self.around(sines)
