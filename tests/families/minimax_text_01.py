"""MiniMax-Text-01 by the names of its own files: as MiniMax-M1's."""

from tests.families import minimax_m1
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**minimax_m1.TINY, "model_type": "minimax_text_01"}
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}
RUN_BY = "MiniMax"
REQUIRED = minimax_m1.REQUIRED


def drawn(draw: Draw) -> Fields:
    return minimax_m1.drawn(draw)


def sized(of: Distinct) -> Sized:
    return minimax_m1.sized(of)
