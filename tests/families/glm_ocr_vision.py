"""GLM-OCR's encoder of images: normed queries and keys, and a merger as wide as its class has it."""

from tests.families import glm4v_vision as first
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized
from tests.families.glm4v_vision import CONTEXT as CONTEXT
from tests.families.glm4v_vision import REQUIRED as REQUIRED

TINY = {**first.TINY, "model_type": "glm_ocr_vision"}
VARIANTS = {"without biases": {**TINY, "attention_bias": False}}


def drawn(draw: Draw) -> Fields:
    return first.drawn(draw)


def sized(of: Distinct) -> Sized:
    config, sizes = first.sized(of)
    del sizes["P"]
    return config, {**sizes, "F": of.F, "Fm": of.V * sizes["Cc"]}
