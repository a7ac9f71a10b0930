"""Gated DeltaNet: what several families draw and spell alike."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, some

LINEAR, FULL = "linear_attention", "full_attention"


def deltas(draw: Draw) -> Fields:
    """Heads, their sizes, and kernels longer and shorter than what is asked for."""
    keys = draw(st.integers(1, 4))
    heads = {"linear_num_key_heads": keys, "linear_num_value_heads": keys * draw(st.integers(1, 3))}
    sizes = {"linear_key_head_dim": draw(SMALL), "linear_value_head_dim": draw(SMALL)}
    return some(draw, {**heads, **sizes}, linear_conv_kernel_dim=st.integers(1, 9))


def linear_layers(draw: Draw, fields: Fields) -> Fields:
    """Which layers have attention, one of them at least: by a list, or every so many."""
    layers = fields["num_hidden_layers"]
    if draw(ON):
        return {"full_attention_interval": draw(st.integers(1, layers))}
    kinds = draw(st.lists(st.sampled_from([LINEAR, FULL]), min_size=layers, max_size=layers))
    kinds[draw(st.integers(0, layers - 1))] = FULL
    return {"layer_types": kinds}
