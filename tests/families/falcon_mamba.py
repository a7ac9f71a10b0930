"""FalconMamba: Mamba with norms that have no parameters."""

from tests.families import mamba
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**mamba.TINY, "model_type": "falcon_mamba", "expand": 3}
LOGITS = {"": TINY, "plain": {**TINY, "use_bias": False, "use_conv_bias": False, "mixer_rms_eps": 1e-3}}
SILENT = {**mamba.SILENT, "use_falcon_mambapy": False}
CONTEXT = mamba.CONTEXT
INSTEAD = mamba.INSTEAD
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    return mamba.drawn(draw)


def sized(of: Distinct) -> Sized:
    return mamba.sized(of)
