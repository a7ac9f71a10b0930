"""Splinter: BERT's encoder alone."""

from tests.families import bert
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**bert.TINY, "model_type": "splinter", "vocab_size": 173}
SILENT = {"question_token_id": 104}
REQUIRED = bert.REQUIRED


def drawn(draw: Draw) -> Fields:
    return bert.drawn(draw)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    return config, {letter: size for letter, size in sizes.items() if letter != "Dt"}
