"""Mistral Small 4: DeepSeek-V3's blocks, queries that grow with their position."""

from tests.families import _sizes, deepseek_v3, ministral3
from tests.families._drawing import Draw, Fields, in_forms, latent_forms
from tests.families._sizes import Distinct, Sized

GROWING = {**ministral3.GROWING, "rope_type": "linear", "factor": 4.0}
"""The class turns a part of a head only where its angles are stretched."""
TINY = {**deepseek_v3.TINY, "model_type": "mistral4", "vocab_size": 419, "pad_token_id": 0, "rope_parameters": GROWING}
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
LOGITS = latent_forms(TINY)
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return {**deepseek_v3.drawn(draw), "pad_token_id": 0}


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.sized_latent(of, ranked=True)
    return {**config, "rope_parameters": GROWING}, sizes
