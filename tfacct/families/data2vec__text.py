"""data2vec for text: RoBERTa's encoder. Its class's default sizes are BERT's."""

from typing import ClassVar

from tfacct.families import roberta
from tfacct.families._base import Count

RELEASED = "2022-02"


class Config(roberta.Config):
    """`Data2VecTextConfig`, with its class's defaults."""

    vocab_size: Count = 30522

    stems: ClassVar = ("Data2VecText",)
    body: ClassVar = "data2vec_text."
    hf_paths: ClassVar = {
        ours: theirs.replace("roberta.", "data2vec_text.", 1) for ours, theirs in roberta.Config.hf_paths.items()
    }
