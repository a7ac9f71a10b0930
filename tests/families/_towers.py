"""Random configs and sizes of the encoders of images and texts."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, of_whole_heads, some, without

NAMES = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"


def blocks(draw: Draw, *names: str) -> Fields:
    """Sizes of the blocks, without those `names`."""
    fields = {**without(of_whole_heads(draw), "tie_word_embeddings", *names), "intermediate_size": draw(WIDTH)}
    return some(draw, fields, hidden_act=st.just("gelu"))


def image(draw: Draw) -> Fields:
    """Sizes of an encoder of images: sides that its patches need not fill."""
    patch = draw(SMALL)
    sides = {"patch_size": patch, "image_size": patch * draw(SMALL) + draw(st.integers(0, patch - 1))}
    return some(draw, {**blocks(draw, "vocab_size"), **sides}, num_channels=SMALL)
