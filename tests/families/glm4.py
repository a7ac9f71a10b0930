"""GLM-4: GLM's block with four norms."""

from tests.families import glm
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**glm.TINY, "model_type": "glm4", "vocab_size": 331}
REQUIRED = glm.REQUIRED


def drawn(draw: Draw) -> Fields:
    return glm.drawn(draw)


def sized(of: Distinct) -> Sized:
    return glm.sized(of)
