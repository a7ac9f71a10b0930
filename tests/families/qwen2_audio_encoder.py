"""Qwen2-Audio's encoder of audio: positions that are averaged in twos."""

from tests.families import voxtral_encoder as first
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families.voxtral_encoder import CONTEXT as CONTEXT
from tests.families.voxtral_encoder import REQUIRED as REQUIRED

TINY = {**first.TINY, "model_type": "qwen2_audio_encoder", "max_source_positions": 34}
SILENT = first.SILENT


def drawn(draw: Draw) -> Fields:
    fields = first.drawn(draw)
    return {**fields, "max_source_positions": 2 * fields["max_source_positions"]}


def sized(of: Distinct) -> Sized:
    config, sizes = first.sized(of)
    config["max_source_positions"] = 2 * of.P
    return config, {**sizes, "P": 2 * of.P, "T": 2 * of.S, "S": 2 * of.S, "Mp": 2, "Tm": of.S}
