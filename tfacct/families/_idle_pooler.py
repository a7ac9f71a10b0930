"""Shared by LayoutLM and BigBird: each of their classes stores BERT's pooler, and runs it where nothing reads it."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Idle, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.families._bert_like import AbleToDecode


class StoresPooler(AbleToDecode):
    """BERT's encoder whose pooler is there, read or not."""

    class_extra: ClassVar = "it runs the pooler, whose result nothing reads"

    def transformer(self) -> Transformer:
        """Where nothing reads the pooler, it is stored all the same."""
        shape = super().transformer()
        return shape if shape.pooler is not None else replace(shape, idle=Idle(hidden=self.hidden_size))

    def class_multiplies(self) -> Transformer | None:
        """It runs the pooler everywhere."""
        shape = self.transformer()
        return None if shape.idle is None else replace(shape, idle=None, pooler=Pooler(hidden=self.hidden_size))
