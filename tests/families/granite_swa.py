"""Granite with windows: sinks beside the scores, angles by layer."""

from hypothesis import strategies as st

from tests.families import granite
from tests.families._drawing import WINDOW, Draw, Fields, layer_types, some
from tests.families._sizes import Distinct, Sized

OWN = {
    "num_hidden_layers": 3, "sliding_window": 5, "layer_rope_theta": [700.0, 0, 100.0],
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
}  # fmt: skip
TINY = {**granite.TINY, "model_type": "granite_swa", "vocab_size": 439, **OWN}
LOGITS = {"": TINY, "of one base": {**TINY, "layer_rope_theta": None, "layer_types": None}}
REQUIRED = {"num_hidden_layers": 5}  # every size has a default


def windowed(draw: Draw, fields: Fields) -> Fields:
    """Windows and bases of the angles by layer."""
    layers = fields["num_hidden_layers"]
    bases = st.lists(st.sampled_from([0, 500.0, 10_000.0]), min_size=layers, max_size=layers)
    fields = layer_types(draw, fields | {"sliding_window": draw(WINDOW)})
    return some(draw, fields, layer_rope_theta=st.none() | bases)


def drawn(draw: Draw) -> Fields:
    return windowed(draw, granite.drawn(draw))


def sized(of: Distinct) -> Sized:
    config, sizes = granite.sized(of)
    return {**config, "layer_types": ["full_attention"] * of.L}, sizes
