"""Kimi-K2.5's encoder of images: a square table of positions, and heads that turn in fours."""

from tests.families._drawing import SMALL, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import blocks, image_sizes

TINY = {
    "model_type": "kimi_k25_vision", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "patch_size": 5, "pos_emb_height": 4, "pos_emb_width": 4,
}  # fmt: skip
SILENT = {"pos_emb_time": 7, "text_hidden_size": 9}
CONTEXT = 4096


def drawn(draw: Draw) -> Fields:
    fields = {**blocks(draw, "vocab_size", "hidden_act"), "patch_size": draw(SMALL)}
    side = draw(SMALL)
    fields |= {"pos_emb_height": side, "pos_emb_width": side}
    return some(draw, {**fields, "hidden_size": 4 * fields["num_attention_heads"] * draw(SMALL)}, pos_emb_time=SMALL)


def sized(of: Distinct) -> Sized:
    of.H *= 4
    config, sizes = image_sizes(of, front=0)
    config = without(config, "image_size", "num_channels")
    config |= {"pos_emb_height": of.P, "pos_emb_width": of.P}
    return config, {**sizes, "P": of.P**2, "Cc": 3}
