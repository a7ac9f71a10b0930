"""MiniMax-M1 by the names of its own files."""

from tests.families import minimax
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized

LISTED = {minimax.FULL: 1, minimax.LINEAR: 0}


def spelled(config: Fields) -> Fields:
    """MiniMax's fields, with the kinds of layers as numbers."""
    kinds = config.get("layer_types")
    layers = config["num_hidden_layers"]
    kinds = kinds or [minimax.LINEAR if number % 2 else minimax.FULL for number in range(layers)]
    own = {name: value for name, value in config.items() if name != "layer_types"}
    return {**own, "attn_type_list": [LISTED[kind] for kind in kinds]}


TINY = {**spelled(minimax.TINY), "model_type": "minimax_m1"}
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7, "layernorm_mlp_alpha": 1.5}}
RUN_BY = "MiniMax"
REQUIRED = {"attn_type_list": [0, 1] * 16}


def drawn(draw: Draw) -> Fields:
    return spelled(minimax.drawn(draw))


def sized(of: Distinct) -> Sized:
    config, sizes = minimax.sized(of)
    return spelled(config), sizes
