"""EXAONE 4.5's encoder of images: that of Qwen2.5-VL, with grouped queries."""

from hypothesis import strategies as st

from tests.families import qwen2_5_vl_vision as first
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families.qwen2_5_vl_vision import CONTEXT as CONTEXT

TINY = {**first.TINY, "model_type": "exaone4_5_vision", "num_key_value_heads": 2}
REQUIRED: Fields = {**first.REQUIRED}


def drawn(draw: Draw) -> Fields:
    fields = first.drawn(draw)
    heads = fields["num_heads"]
    return {**fields, "num_key_value_heads": draw(st.sampled_from([n for n in range(1, 13) if heads % n == 0]))}


def sized(of: Distinct) -> Sized:
    config, sizes = first.sized(of)
    hidden, group = sizes["D"] * of.G, {"N": of.K * of.G, "G": of.G}
    config |= {"hidden_size": hidden, "num_heads": of.K * of.G, "num_key_value_heads": of.K}
    return config, {**sizes, **group, "D": hidden, "Du": sizes["Mp"] * hidden}
