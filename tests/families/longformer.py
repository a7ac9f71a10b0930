"""Longformer: RoBERTa's encoder in windows that overlap."""

from tests.families import roberta
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families.led import every_window

TINY = {**roberta.TINY, "model_type": "longformer", "vocab_size": 191, "attention_window": 14}
TWO = {**TINY, "num_hidden_layers": 3, "attention_window": [4, 12, 4]}
LOGITS = {"": TINY, "windows of two sizes": TWO, "one window": {**TINY, "attention_window": 18}}
SILENT = {"attention_mode": "longformer", "ignore_attention_mask": False}
REQUIRED = roberta.REQUIRED
CONTEXT = 510


def drawn(draw: Draw) -> Fields:
    fields = roberta.drawn(draw)
    fields["hidden_size"] *= 2  # a product over heads of one number torch runs as pointwise work
    return {**fields, "attention_window": every_window(draw, fields["num_hidden_layers"])}


def sized(of: Distinct) -> Sized:
    config, sizes = roberta.sized(of)
    half = of.more[2]
    sizes |= {"Wo": half, "Wf": 2 * half, "Wg": 2 * half, "Wv": 3 * half, "Ws": 2 * half + 1, "Wl": 2 * half}
    halves = -(-of.S // (2 * half)) * 2
    return {**config, "attention_window": 2 * half}, {**sizes, "Ip": halves * half, "Ih": halves, "Iw": halves - 1}
