"""Mamba-2 beside attention: what several families draw and spell alike."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, some


def mixers(draw: Draw, hidden: int) -> Fields:
    """A Mamba-2 of heads that divide the width; a sum over one number is no product in the class."""
    expand = draw(st.integers(1, 2))
    heads = draw(st.sampled_from([n for n in range(1, hidden * expand + 1) if hidden * expand % n == 0 and n < 13]))
    groups = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    fields = {"mamba_expand": expand, "mamba_n_heads": heads, "mamba_n_groups": groups}
    sizes = {"mamba_d_state": st.integers(2, 7), "mamba_d_conv": st.integers(1, 9)}
    some(draw, fields, **sizes, mamba_chunk_size=st.integers(2, 7))
    return some(draw, fields, mamba_conv_bias=ON, mamba_proj_bias=ON)
