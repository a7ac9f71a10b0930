"""umT5: a table of relative positions in every block."""

from tests.families import t5
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**t5.TINY, "model_type": "umt5"}
VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False, "feed_forward_proj": "relu"}}
LOGITS = {"": TINY, "of few near distances": {**TINY, "feed_forward_proj": "relu", **t5.NEAR}}
SILENT = {**t5.SILENT, "tokenizer_class": "T5Tokenizer"}
CONTEXT = t5.CONTEXT
REQUIRED = t5.REQUIRED


def drawn(draw: Draw) -> Fields:
    return t5.drawn(draw)


def sized(of: Distinct) -> Sized:
    return t5.sized(of)
