"""Llama 4's encoder of images: a class token behind the patches, which are joined."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, without
from tests.families._sizes import Distinct, Sized
from tests.families._towers import blocks, image_sizes

TINY = {
    "model_type": "llama4_vision_model", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 192, "num_channels": 5, "image_size": 30, "patch_size": 5, "projector_input_dim": 37,
    "projector_output_dim": 37,
}  # fmt: skip
REQUIRED: Fields = {"num_hidden_layers": 2, "intermediate_size": 3072}
CONTEXT = 1025


def drawn(draw: Draw) -> Fields:
    fields = without(blocks(draw, "vocab_size"), "hidden_act")
    hidden = 4 * fields["num_attention_heads"] * draw(SMALL)
    side, patch, width = draw(st.integers(1, 3)), draw(SMALL), draw(WIDTH)
    fields |= {"hidden_size": hidden, "pixel_shuffle_ratio": 1 / side, "intermediate_size": side**2 * hidden}
    fields |= {"patch_size": patch, "image_size": patch * side * draw(st.integers(1, 3))}
    return {**fields, "projector_input_dim": width, "projector_output_dim": width, "num_channels": draw(SMALL)}


def sized(of: Distinct) -> Sized:
    of.H *= 4
    config, sizes = image_sizes(of, front=1)
    edge = 1 + of.seed % 3
    side, merged = edge * of.more[0], edge**2
    config |= {"projector_input_dim": of.V, "projector_output_dim": of.V, "intermediate_size": merged * sizes["D"]}
    config |= {"image_size": side * of.J, "pixel_shuffle_ratio": 1 / edge}
    patches = merged * of.S
    tokens = {"T": patches + 1, "S": patches + 1, "Ti": patches, "Tm": of.S, "P": side**2 + 1}
    return config, {**sizes, **tokens, "F": merged * sizes["D"], "Mp": merged, "Dq": of.V, "Dh": of.V}
