"""Splinter: BERT's encoder, without a pooler; what chooses an answer's ends behind it is not counted."""

from typing import ClassVar

from tfacct.families._base import Count
from tfacct.families._bert_like import AbleToDecode, BertLike, class_table
from tfacct.families._endings import BODY

RELEASED = "2021-01"


class Config(BertLike):
    """`SplinterConfig`, with its class's defaults: `SplinterModel`."""

    type_vocab_size: Count = 2

    stems: ClassVar = ("Splinter",)
    heads: ClassVar = {"Model": BODY}
    dropouts: ClassVar = {name: said for name, said in AbleToDecode.dropouts.items() if name != "classifier"}
    body: ClassVar = "splinter."
    hf_paths: ClassVar = class_table("splinter.", {})
    harmless: ClassVar = frozenset({"question_token_id"})
