"""CamemBERT: RoBERTa, for French. Everything is RoBERTa's but the class's default vocabulary."""

from typing import ClassVar

from tfacct.families import xlm__roberta

RELEASED = "2019-11"


class Config(xlm__roberta.Config):
    """`CamembertConfig`, with its class's defaults."""

    stems: ClassVar = ("Camembert",)
