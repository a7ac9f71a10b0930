"""XLM-RoBERTa: RoBERTa, for many languages. Everything is RoBERTa's but the class's default vocabulary."""

from typing import ClassVar

from tfacct.families import roberta
from tfacct.families._base import Count

RELEASED = "2019-11"


class Config(roberta.Config):
    """`XLMRobertaConfig`, with its class's defaults."""

    vocab_size: Count = 30522

    stems: ClassVar = ("XLMRoberta",)
    head_first: ClassVar = True
    gotchas: ClassVar = ("As RoBERTa wherever nothing else is said: positions, heads, what is refused.",)
