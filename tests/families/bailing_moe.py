"""Ling 2.0: GLM-4.5, by names of its own."""

from tests.families import glm4_moe
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

NAMES = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"}


def spelled(config: Fields) -> Fields:
    """The fields of GLM-4.5 as Ling's files spell them."""
    return {NAMES.get(name, name): value for name, value in config.items()}


TINY = {**spelled(glm4_moe.TINY), "model_type": "bailing_moe", "vocab_size": 353, "partial_rotary_factor": 0.5}
LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
SILENT = {"moe_shared_expert_intermediate_size": TINY["moe_intermediate_size"], "use_rmsnorm": True}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default
RUN_BY = "Glm4Moe"


def drawn(draw: Draw) -> Fields:
    return spelled(glm4_moe.drawn(draw))


def sized(of: Distinct) -> Sized:
    config, sizes = glm4_moe.sized(of)
    return spelled(config), sizes
