"""VaultGemma: Gemma 2 without norms behind."""

from tests.families import gemma2
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {**gemma2.TINY, "model_type": "vaultgemma", "vocab_size": 283, "max_position_embeddings": 71}
FEW = {**TINY, "num_hidden_layers": 2}  # more of them add up the class's roundings
LOGITS = {"": FEW, "unbounded": {**FEW, "attn_logit_softcapping": None, "final_logit_softcapping": None}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return gemma2.drawn(draw)


def sized(of: Distinct) -> Sized:
    return gemma2.sized(of)
