"""CodeGen: GPT-J, with q, k and v in one matrix of four parts."""

from tests.families import gptj
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "codegen", "vocab_size": 313, "n_embd": 80, "n_layer": 2, "n_head": 8, "n_positions": 89,
    "n_inner": 67, "rotary_dim": 6,
}  # fmt: skip
LOGITS = {}  # its matrix holds q, v and k in four parts
REQUIRED = gptj.REQUIRED


def drawn(draw: Draw) -> Fields:
    return gptj.of_parts(draw, 4)


def sized(of: Distinct) -> Sized:
    config, sizes = gptj.sized(of)
    heads = 4 * of.K
    return {**config, "n_head": heads, "n_embd": heads * of.H}, {**sizes, "K": heads, "N": heads, "D": heads * of.H}
