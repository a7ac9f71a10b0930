"""RoBERTa: BERT's encoder, with positions that are counted from the row behind the padding token's."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, UpTo
from tfacct.families._bert_like import LM_HEAD, AbleToDecode, class_table

RELEASED = "2019-07"


class Config(AbleToDecode):
    """`RobertaConfig`, with its class's defaults: `RobertaForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 50265
    pad_token_id: UpTo = 1

    stems: ClassVar[tuple[str, ...]] = ("Roberta",)
    uncounted: ClassVar = AbleToDecode.uncounted | {"pad_token_id"}
    head_act: ClassVar = "gelu"
    body: ClassVar = "roberta."
    hf_paths: ClassVar = class_table("roberta.", LM_HEAD)
    hf_tensors: ClassVar = {"lm_head.bias": "lm_head.bias"}

    @property
    def offset(self) -> int:
        """Rows of the position table that stand for no position."""
        return self.pad_token_id + 1

    @property
    def context(self) -> int:
        """max_position_embeddings, less the rows that stand for no position."""
        return self.max_position_embeddings - self.offset

    def positions(self) -> Positions:
        """Table whose first rows stand for no position. Raises ConfigError where no row is left."""
        if self.context < 1:
            raise ConfigError(
                f"max_position_embeddings = {self.max_position_embeddings:,} leaves no position behind"
                f" pad_token_id = {self.pad_token_id:,}"
            )
        return Positions(rows=self.max_position_embeddings, offset=self.offset, **self.row)
