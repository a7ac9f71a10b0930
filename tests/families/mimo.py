"""MiMo: Qwen2 by another name."""

from tests.families import qwen2
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**qwen2.TINY, "model_type": "mimo", "vocab_size": 227}
SILENT = {"num_nextn_predict_layers": 1, "attention_bias": True}
REQUIRED = qwen2.REQUIRED
RUN_BY = "Qwen2"


def drawn(draw: Draw) -> Fields:
    return qwen2.drawn(draw)


def sized(of: Distinct) -> Sized:
    return qwen2.sized(of)
