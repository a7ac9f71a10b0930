"""GLM-4.1V's encoder of images: a norm behind the patches, a resampled table of positions, and a gated merger."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WIDTH, Draw, Fields, some
from tests.families._qwen_vision import grid_image, grid_sizes
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "glm4v_vision", "depth": 3, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
    "in_channels": 5, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 37,
    "image_size": 18, "attention_bias": True,
}  # fmt: skip
REQUIRED: Fields = {"depth": 2}
CONTEXT = 576


def drawn(draw: Draw) -> Fields:
    fields = {**grid_image(draw, "hidden_size"), "intermediate_size": draw(WIDTH)}
    patch = fields.get("patch_size", 14)
    fields["image_size"] = patch * draw(SMALL) + draw(st.integers(0, patch - 1))
    return some(draw, fields, out_hidden_size=WIDTH, attention_bias=ON, hidden_act=st.just("silu"))


def sized(of: Distinct) -> Sized:
    config, sizes = grid_sizes(of, "hidden_size", "out_hidden_size")
    config |= {"intermediate_size": of.F, "image_size": of.P * of.J}
    sizes = {name: size for name, size in sizes.items() if name != "Du"}
    return config, {**sizes, "F": of.V, "Fm": of.F, "Dh": of.V, "P": of.P**2, "Tm": of.S}
