"""Random configs and sizes of Qwen's encoders of images."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

MERGED = st.integers(1, 3)


def grid_image(draw: Draw, width: str) -> Fields:
    """Sizes of the patches, heads of whole fours, and how many patches are merged on a side."""
    heads = draw(SMALL)
    fields = {"depth": draw(st.integers(1, 3)), "num_heads": heads, width: 4 * heads * draw(SMALL)}
    return some(
        draw, fields, patch_size=SMALL, temporal_patch_size=MERGED, in_channels=SMALL, spatial_merge_size=MERGED
    )


def grid_sizes(of: Distinct, width: str, out: str) -> Sized:
    """Letters of such an encoder, a few patches merged on a side."""
    side = 1 + of.seed % 3
    together = side**2
    head = 4 * (of.H // 2 + 1)
    sizes = {
        **of.axis_names("KLB"),
        "G": 1,
        "N": of.K,
        "H": head,
        "D": of.K * head,
        "T": together * of.S,
        "S": together * of.S,
    }
    sizes |= {"Cc": of.more[0], "Px": 3 * of.J**2, "Mp": together, "Du": together * of.K * head, "Dq": of.V}
    config = {
        "depth": of.L, "num_heads": of.K, width: of.K * head, out: of.V, "in_channels": of.more[0],
        "patch_size": of.J, "temporal_patch_size": 3, "spatial_merge_size": side,
    }  # fmt: skip
    return config, sizes


def width_of(draw: Draw, fields: Fields, **more: st.SearchStrategy[object]) -> Fields:
    """With a width of its own for the network, or what stands for it."""
    return some(draw, {**fields, "intermediate_size": draw(WIDTH)}, **more)
