"""Random configs and sizes of Qwen's encoders of images."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some

MERGED = st.integers(1, 3)


def grid_image(draw: Draw, width: str) -> Fields:
    """Sizes of the patches, heads of whole fours, and how many patches are merged on a side."""
    heads = draw(SMALL)
    fields = {"depth": draw(st.integers(1, 3)), "num_heads": heads, width: 4 * heads * draw(SMALL)}
    return some(
        draw, fields, patch_size=SMALL, temporal_patch_size=MERGED, in_channels=SMALL, spatial_merge_size=MERGED
    )


def width_of(draw: Draw, fields: Fields, **more: st.SearchStrategy[object]) -> Fields:
    """With a width of its own for the network, or what stands for it."""
    return some(draw, {**fields, "intermediate_size": draw(WIDTH)}, **more)
