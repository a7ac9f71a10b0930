"""Pixtral's encoder of images: no positions, turned heads, a gated network."""

from tests.families._drawing import SMALL, Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "pixtral", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
}  # fmt: skip
CONTEXT = 4096


def drawn(draw: Draw) -> Fields:
    """Heads whose halves turn by rows and by columns."""
    fields = image(draw)
    return {**fields, "hidden_size": 4 * fields["num_attention_heads"] * draw(SMALL)}


def sized(of: Distinct) -> Sized:
    of.H *= 2  # its halves turn in pairs
    config, sizes = image_sizes(of, front=0)
    return config, {letter: size for letter, size in sizes.items() if letter != "P"}
