"""Random configs and sizes of the encoders of images and texts."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads

NAMES = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
LAYERS_ONLY: Fields = {"num_hidden_layers": 2}


def blocks(draw: Draw, *names: str) -> Fields:
    """Sizes of the blocks, without those `names`."""
    fields = {**without(of_whole_heads(draw), "tie_word_embeddings", *names), "intermediate_size": draw(WIDTH)}
    return some(draw, fields, hidden_act=st.just("gelu"))


def image(draw: Draw) -> Fields:
    """Sizes of an encoder of images: sides that its patches need not fill."""
    patch = draw(SMALL)
    sides = {"patch_size": patch, "image_size": patch * draw(SMALL) + draw(st.integers(0, patch - 1))}
    return some(draw, {**blocks(draw, "vocab_size"), **sides}, num_channels=SMALL)


def image_sizes(of: Distinct, *, front: int) -> Sized:
    """Letters of an encoder of images: patches of J pixels on a side, T tokens of which `front` are none."""
    config, sizes = of_heads(of, NAMES)
    side, channels = of.more[0], of.more[1]
    config = {**without(config, "vocab_size"), "patch_size": of.J, "image_size": side * of.J, "num_channels": channels}
    sizes = {**without(sizes, "V"), "T": of.S, "P": side**2 + front, "Cc": channels, "Px": of.J**2}
    return config, {**sizes, **({"Xc": front, "Ti": of.S - front} if front else {})}


def text_sizes(of: Distinct, **fields: object) -> Sized:
    """Letters of an encoder of texts."""
    config, sizes = of_heads(of, NAMES, max_position_embeddings=of.P, **fields)
    return config, {**sizes, "T": of.S, "P": of.P}
