"""Gated DeltaNet: what several families draw and spell alike."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

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


def sized_deltas(of: Distinct, config: Fields, sizes: dict[str, int]) -> Sized:
    """Attention in all layers, or DeltaNet in all, by turns."""
    if not of.seed % 2:
        part = {"partial_rotary_factor": 2 * max(1, of.H // 8) / of.H} if "head_dim" in config else {}
        sizes |= {"Hr": 2 * max(1, of.H // 8)} if part else {}
        return {**config, "layer_types": [FULL] * of.L, **part}, sizes
    Kd, Gd, Hk, Hv, Kc = of.more[4], of.K, of.G, of.more[5], of.P
    sizes = {axis: size for axis, size in sizes.items() if axis not in "KGHN"}
    sizes |= {"Kd": Kd, "Gd": Gd, "Nd": Kd * Gd, "Hk": Hk, "Hv": Hv, "Kc": Kc, "Dc": 2 * Kd * Hk + Kd * Gd * Hv}
    sizes |= {"Pc": 64, "Qc": 64, "Nc": -(-of.T // 64)}
    config |= {"linear_num_key_heads": Kd, "linear_num_value_heads": Kd * Gd, "linear_conv_kernel_dim": Kc}
    config |= {"linear_key_head_dim": Hk, "linear_value_head_dim": Hv, "layer_types": [LINEAR] * of.L}
    return config, sizes
