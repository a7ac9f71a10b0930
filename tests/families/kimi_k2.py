"""Kimi K2: DeepSeek-V3 by another name."""

from tests.families import deepseek_v3
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**deepseek_v3.TINY, "model_type": "kimi_k2", "vocab_size": 233, "n_group": 1, "topk_group": 1}
LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = deepseek_v3.REQUIRED


def drawn(draw: Draw) -> Fields:
    return deepseek_v3.drawn(draw)


def sized(of: Distinct) -> Sized:
    return deepseek_v3.sized(of)
